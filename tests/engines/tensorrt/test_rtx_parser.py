"""TensorRT for RTX's own parser, which needs no GPU, asked about nodes."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from model_texts import parse
from trtnode.engines.tensorrt.labelling.parser import ask_parser, make_logger, new_builder, new_network
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode

rtx: Any = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

QDQ = (
    "g (float[2,4] x) => (float[2,4] y) <float scale = {0.02}, uint8 zero = {%d}>"
    " { q = QuantizeLinear(x, scale, zero) d = DequantizeLinear(q, scale, zero) y = Relu(d) }"
)


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Writes a graph in ONNX's own language to a file."""

    def write(graph: str) -> pathlib.Path:
        path = tmp_path / "asked.onnx"
        model = parse(graph)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path

    return write


def test_parser_takes_what_it_knows_however_often_it_is_asked(write: Callable[[str], pathlib.Path]) -> None:
    path = write("g (float[2] x) => (float[2] y) { a = Relu(x) y = Tanh(a) }")

    assert [ask_parser(rtx, path) for _ in range(3)] == [SUPPORTED] * 3


def test_refusal_has_the_parsers_own_words(write: Callable[[str], pathlib.Path]) -> None:
    verdict = ask_parser(rtx, write("g (float[4,4] x) => (float y) { y = Det(x) }"))

    assert verdict.code == ReasonCode.UNSUPPORTED_OP
    assert verdict.detail.startswith("TensorRT's parser (UNSUPPORTED_NODE")


@pytest.mark.parametrize("zero_point", [0, 128])
def test_uint8_quantization_is_asked_about_as_it_is_built(
    zero_point: int, write: Callable[[str], pathlib.Path]
) -> None:
    assert ask_parser(rtx, write(QDQ % zero_point)) == SUPPORTED


def test_uint8_quantization_that_can_not_be_rewritten_is_refused_before_the_parser_reads_it(
    write: Callable[[str], pathlib.Path],
) -> None:
    verdict = ask_parser(rtx, write(QDQ % 7))

    assert verdict.code == ReasonCode.UNSUPPORTED_DTYPE
    assert "uint8, which TensorRT misreads" in verdict.detail


def test_networks_are_made_without_flags() -> None:
    builder = new_builder(rtx, make_logger(rtx))

    assert new_network(rtx, builder) is not None


def test_one_logger_serves_the_whole_process_and_notes_are_no_errors() -> None:
    logger = make_logger(rtx)
    logger.take()

    logger.log(rtx.ILogger.Severity.INFO, "a note")

    assert make_logger(rtx) is logger
    assert logger.last() is None
