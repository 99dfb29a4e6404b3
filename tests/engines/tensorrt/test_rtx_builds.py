"""Engines that TensorRT for RTX itself builds here, for GPUs that are not here. None of them has run."""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from model_texts import parse
from rtx_judges import asked
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.envelope import Device
from trtnode.engines.backends.progress import Progress, listening
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.errors import BuildError
from trtnode.engines.tensorrt.labelling.parser import make_logger, new_builder, new_network
from trtnode.engines.tensorrt.parsed_tensors import check_tensors
from workshop import Workshop

rtx: Any = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

DENSE = (
    "g (float[2,4] x) => (float[2,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}> { a = MatMul(x, w) y = Relu(a) }"
)
CEILED = (
    "g (float[1,3,2,2] x) => (float[1,3,1,1] y) <float[1,3,1,1] p>"
    " { p = MaxPool<kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1>(x) y = %s(p) }"
)


BATCHES = ShapeRange(min=(1, 3), opt=(4, 3), max=(8, 3))
VARYING = "g (float[N,3] x, float[3] z) => (float[N,3] y) { y = Add(x, z) }"


@pytest.fixture
def build(tmp_path: pathlib.Path) -> Callable[..., bytes]:
    """Builds a graph in ONNX's own language for some targets."""

    def build(graph: str, *targets: str, profiles: tuple[Profile, ...] = ()) -> bytes:
        path = tmp_path / "segment.onnx"
        model = parse(graph)
        onnx.save(model, path)
        return get_backend("tensorrt-rtx").build(path, dataclasses.replace(asked(*targets), profiles=profiles))

    return build


@pytest.mark.parametrize("targets", [(), ("sm86", "sm89"), ("sm120",)], ids=["portable", "two", "one"])
def test_engine_is_built_without_a_gpu(targets: tuple[str, ...], build: Callable[..., bytes]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the timing cache would warn
        engine = build(DENSE, *targets)

    assert len(engine) > 1000


def test_target_that_lacks_a_type_refuses_the_build_in_the_librarys_words(build: Callable[..., bytes]) -> None:
    with pytest.raises(BuildError, match=r"Turing \(SM75\): FP32 GEMM is not supported"):
        build(DENSE, "sm75", "sm86")


@pytest.mark.parametrize("reader", ["Relu", "GlobalMaxPool"], ids=["outside", "inside"])
def test_network_with_another_shape_than_the_model_is_no_engine(reader: str, build: Callable[..., bytes]) -> None:
    with pytest.raises(BuildError, match=r"gives 'p' the shape \[1, 3, 2, 2\]; in ONNX it is \[1, 3, 1, 1\]"):
        build(CEILED % reader)


def test_network_with_another_type_than_the_model_is_no_engine() -> None:
    model = parse("g (double[2] x) => (double[2] y) { y = Abs(x) }")
    log = make_logger(rtx)
    network = new_network(rtx, builder := new_builder(rtx, log))
    parser = rtx.OnnxParser(network, log)

    assert parser.parse(model.SerializeToString())
    with pytest.raises(BuildError, match=r"makes 'y' FLOAT; in ONNX it is DOUBLE"):
        check_tensors(network, model)
    assert builder is not None


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        pytest.param([], "The shape of input 'x' is not fixed", id="none"),
        pytest.param([{"z": BATCHES}], "Profile 0 has no shapes for input 'x'", id="of-another-input"),
        pytest.param(
            [{"x": BATCHES}, {"x": ShapeRange(min=(9, 3), opt=(4, 3), max=(8, 3))}],
            "TensorRT refuses profile 1",
            id="least-above-most",
        ),
        pytest.param(
            [{"x": ShapeRange(min=(-1, 3), opt=(1, 3), max=(8, 3))}],
            "Profile 0, input 'x': TensorRT refuses the shapes",
            id="negative",
        ),
    ],
)
def test_profile_that_does_not_fit_is_told(profiles: list[Profile], said: str, build: Callable[..., bytes]) -> None:
    with pytest.raises(BuildError, match=said):
        build(VARYING, profiles=tuple(profiles))


def test_parser_error_is_the_reason_of_a_failed_build(build: Callable[..., bytes]) -> None:
    with pytest.raises(BuildError, match=r"TensorRT's parser \(UNSUPPORTED_NODE"):
        build("g (float[2,2] x) => (float y) { y = Det(x) }")


def test_build_reports_its_phases_from_begin_to_end(build: Callable[..., bytes]) -> None:
    said: list[Progress] = []

    with listening(said.append):
        build(DENSE)

    first, last = said[0], said[-1]
    assert (first.phase, first.done) == (last.phase, 0)
    assert last.done == last.total == first.total > 0
    assert len({progress.phase for progress in said}) > 1


def test_targets_stand_in_envelope_and_key(workshop: Workshop, tmp_path: pathlib.Path) -> None:
    backend = get_backend("tensorrt-rtx")

    assert backend.target_device(asked()).features == "portable"
    assert backend.target_device(asked("sm89", "sm86")) == Device(features="sm86,sm89", name="GPUs of TensorRT for RTX")
    assert backend.build_properties(asked())["TARGETS"] == "sm80,sm86,sm89,sm120,sm121"
    assert backend.build_properties(asked("sm89", "sm86"))["TARGETS"] == "sm86,sm89"


def test_each_set_of_targets_has_engines_of_its_own_in_the_cache(workshop: Workshop, tmp_path: pathlib.Path) -> None:
    source = workshop.write(DENSE)
    cache = EngineCache(tmp_path / "cache", 10**9)

    def counts(*targets: str) -> tuple[int, int]:
        compiled = workshop.compile(source, engine="tensorrt-rtx", cache=cache, build=asked(*targets))
        return compiled.engines_built, compiled.engines_cached

    assert [counts(), counts("sm86"), counts(), counts("sm86")] == [(1, 0), (1, 0), (0, 1), (0, 1)]
