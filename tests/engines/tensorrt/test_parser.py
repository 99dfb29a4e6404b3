"""Questions to TensorRT's parser, on a simulated TensorRT: the real one needs libraries that are not here."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from engines import Worker
from engines.artifact.envelope import Device
from engines.build import jobs
from engines.build.library_verdicts import _known, ask_library
from engines.build.whole_model import Reading
from engines.tensorrt.backend import TensorRtBackend
from engines.tensorrt.labelling.parser import CODES, ask_parser, make_logger
from engines.tensorrt.library import TENSORRT
from partitioner import PartitionOptions, ReasonCode, Verdict, clean_up, label_nodes, load_model


@pytest.mark.parametrize(("code", "reason"), [*CODES.items(), ("UNSUPPORTED_NODE", ReasonCode.UNSUPPORTED_OP)])
def test_simulated_refusal_keeps_the_parsers_words_and_gets_our_reason_code(
    code: str, reason: ReasonCode, tensorrt: Callable[..., Any], model: pathlib.Path
) -> None:
    module = tensorrt(refuses={"Softsign": (code, "In node 1: Softsign is odd\nmore about it")})

    verdict = ask_parser(module, model)

    assert verdict == Verdict(reason, f"TensorRT's parser ({code}): In node 1: Softsign is odd.")


def test_simulated_parser_that_gives_no_error_is_quoted_from_its_log(
    tensorrt: Callable[..., Any], model: pathlib.Path
) -> None:
    module = tensorrt(refuses={"Softsign": ("INTERNAL_ERROR", "Assertion failed")}, parser_is_silent=True)

    assert ask_parser(module, model).detail == "TensorRT's parser refuses it: Assertion failed."


def test_one_logger_serves_the_whole_process_of_a_simulated_library(tensorrt: Callable[..., Any]) -> None:
    module = tensorrt()

    assert make_logger(module) is make_logger(module)


def test_notes_of_a_simulated_library_are_not_taken_for_its_errors(tensorrt: Callable[..., Any]) -> None:
    module = tensorrt()
    logger = make_logger(module)

    logger.log(module.ILogger.Severity.INFO, "a note")

    assert logger.last() is None


class InProcess(Worker):
    """Asks a simulated library in this process."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self._module = module
        self.asked = 0

    def call(self, function: Callable[..., Any], timeout_s: float | None, /, *args, **kwargs):
        assert function is jobs.check_support
        self.asked += 1
        return ask_parser(self._module, args[1])


class Simulated(TensorRtBackend):
    """The backend on a machine that has a simulated TensorRT and a GPU."""

    def unavailable_reason(self) -> None:
        return None

    def version(self) -> str:
        return "11.1.0.1"

    def device(self) -> Device:
        return Device(features="9.0", name="simulated GPU")


def test_simulated_parser_refines_the_table(tensorrt: Callable[..., Any], model: pathlib.Path) -> None:
    _known.clear()
    graph = clean_up(load_model(model))
    worker = InProcess(tensorrt(refuses={"Softsign": ("UNSUPPORTED_NODE_SHAPE", "rank")}))

    rule = ask_library(Simulated(TENSORRT), Reading(graph=graph), PartitionOptions(), None, worker)
    labels = label_nodes(graph, rule, PartitionOptions())
    _known.clear()

    assert {node.op_type: labels[node.name].code for node in graph.nodes} == {
        "Relu": None,
        "Softsign": ReasonCode.UNSUPPORTED_RANK,
        "Tanh": None,
    }
