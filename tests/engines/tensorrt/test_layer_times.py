"""Times of layers on a simulated TensorRT, whose clock always tells zero."""

from __future__ import annotations

import pytest

from arrays import floats
from streams import Machine
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.cuda.graphs import GraphCapture
from trtnode.engines.cuda.streams import ExecutionStream
from trtnode.engines.diagnostics.profiling import profile_layers

CHAIN = "g (float[2,4] x) => (float[2,4] y) { [n1] a = Relu(x) [n2] b = Softsign(a) [n3] y = Tanh(b) }"


@pytest.mark.parametrize(
    ("details", "kinds"), [(True, ["Relu", "Softsign", "Tanh"]), (False, ["", "", ""])], ids=["detailed", "names-only"]
)
def test_simulated_layers_are_told_by_profiler_and_inspector(details: bool, kinds: list[str], machine: Machine) -> None:
    machine.build = BuildOptions(tensorrt=TensorRtOptions(details=details))
    _, compiled = machine.compile(CHAIN)

    (stage,) = profile_layers(compiled, {"x": floats(2, 4)}, threads=None)

    assert (stage.stage, stage.engine) == ("segment_0", f"tensorrt {machine.tensorrt.__version__}")
    assert [layer.nodes for layer in stage.layers] == [("n1",), ("n2",), ("n3",)]
    assert [layer.kind for layer in stage.layers] == kinds
    assert {layer.us for layer in stage.layers} == {0.0}
    assert {layer.precision + layer.kernel for layer in stage.layers} == {"fp32simulated" if details else ""}


def test_simulated_layers_of_native_stages_between_engines_are_timed_by_onnxruntime(machine: Machine) -> None:
    _, compiled = machine.compile(CHAIN, native_ops=("Softsign",))

    stages = profile_layers(compiled, {"x": floats(2, 4)}, threads=None)

    assert [(stage.stage, stage.engine.split()[0]) for stage in stages] == [
        ("segment_0", "tensorrt"), ("native_1", "native"), ("segment_1", "tensorrt"),
    ]  # fmt: skip
    assert [layer.kind for layer in stages[1].layers] == ["Softsign"]


def test_engines_that_serve_requests_have_no_profiler(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(machine.tensorrt.IExecutionContext, "report_to_profiler", reported.append)

    machine.load(CHAIN).check(x=floats(2, 4))

    assert reported == []


def test_simulated_engines_are_not_recorded_while_their_layers_are_timed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, compiled = machine.compile(CHAIN)
    recorded: list[bool] = []

    def record(stream: ExecutionStream, *, wanted: bool) -> GraphCapture:
        recorded.append(wanted)
        return GraphCapture(stream, wanted=wanted)

    monkeypatch.setattr("trtnode.engines.tensorrt.stage.GraphCapture", record)

    profile_layers(compiled, {"x": floats(2, 4)}, threads=None)

    assert recorded == [True, True, False, False]  # on two streams: as a whole, then for its layers
