"""Float16 between engines of TensorRT. They are simulated: nothing here ran on TensorRT or on a GPU."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from arrays import floats
from streams import ANYONE, Machine
from trtnode.engines.artifact.checksum import stamp_checksum
from trtnode.engines.backends.protocols import PrecisionSupport
from trtnode.engines.compile.prepare import load_executable
from trtnode.engines.precision.options import PrecisionOptions
from trtnode.engines.tensorrt.backend import TensorRtBackend
from trtnode.engines.tensorrt.library import TENSORRT

SKIP = """g (float[64, 64] x) => (float[64, 64] y) {
    u = Relu(x) t = Neg(u) n = Softsign(t) y = Add(n, u)
}"""
"""``u`` goes from one engine past a native node to another engine; ``t`` and ``n`` are seen by that node."""


def compile_half(machine: Machine) -> tuple[pathlib.Path, pathlib.Path]:
    machine.precision = PrecisionOptions(precision="fp16")
    return machine.compile(SKIP, native_ops=("Softsign",))


def check(source: pathlib.Path, compiled: pathlib.Path) -> Any:
    """Load, and compare with what ONNX Runtime makes of the source; give the executable."""
    executable = load_executable(compiled, trust=ANYONE)
    fallbacks: list[str] = []
    executable.on_fallback = fallbacks.append
    for seed in range(3):
        feeds = {"x": floats(64, 64, seed=seed)}
        (expected,) = onnxruntime.InferenceSession(source).run(None, feeds)
        result = executable.run(feeds)["y"]
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)
    assert fallbacks == []
    return executable


def test_a_tensor_between_engines_takes_half_the_memory_of_a_gpu(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    support = TensorRtBackend(TENSORRT).precision_support()
    without = PrecisionSupport(effective=support.effective, typed=support.typed, accelerated=support.accelerated)
    sizes = []
    for offered in (support, without):
        monkeypatch.setattr(TensorRtBackend, "precision_support", lambda *_, offered=offered: offered)
        machine.clean()
        before = machine.gpu.memory.size
        executable = check(*compile_half(machine))
        sizes.append(machine.gpu.memory.size - before)
        executable.close()

    assert sizes[1] - sizes[0] >= 64 * 64 * 2  # scratch memory of the engines shrinks as well


@pytest.mark.parametrize("number", [0, 1])
def test_either_engine_may_be_missing(number: int, machine: Machine) -> None:
    source, compiled = compile_half(machine)
    model = onnx.load(compiled)
    node = [node for node in model.graph.node if node.op_type == "TrtNode"][number]
    tensor = next(a.t for a in node.attribute if a.name == "engine")
    tensor.raw_data = b"x" + tensor.raw_data[1:]
    onnx.save(model, compiled)

    assert check(source, compiled).description["segments"] == 1


def test_engines_that_hold_a_tensor_in_two_types_run_with_casts(machine: Machine) -> None:
    source, compiled = compile_half(machine)
    machine.precision = PrecisionOptions()
    _, exact = machine.compile(SKIP, native_ops=("Softsign",))
    model, other = onnx.load(compiled), onnx.load(exact)
    mine, theirs = ([n for n in one.graph.node if n.op_type == "TrtNode"][1] for one in (model, other))
    mine.CopyFrom(theirs)
    stamp_checksum(model, compiled)
    onnx.save(model, compiled)

    assert check(source, compiled).description["segments"] == 2
