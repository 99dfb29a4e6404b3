"""TensorRT 8.6 behind the names of 10.3, over a stand-in that has what 8.6 has. Nothing here ran on TensorRT."""

from __future__ import annotations

import enum
import pathlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from arrays import floats
from real_signatures import public_members
from simulated_tensorrt import Plan, Simulation
from streams import Machine, between
from tensorrt_8 import adapter
from tensorrt_8.stand_in import API, RELEASE, make_bindings
from trtnode.engines.backends.registry import get_backend
from trtnode.partitioner.cut.options import Allowance

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
HYBRID = "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) b = Softsign(a) c = Exp(b) d = Softsign(c) y = Abs(d) }"
HALF = "g (float16[2, 4] x) => (float16[2, 4] y) { a = Relu(x) y = Exp(a) }"
QUANTIZED = """g (float[2, 4] x) => (float[2, 4] y) <float s = {0.05}, int8 z = {0}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    y = Exp(d)
}"""


@pytest.fixture
def machine(simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Machine:
    """A machine with TensorRT 8.6 behind the adapter."""
    simulation = simulate(version=RELEASE)
    monkeypatch.setitem(sys.modules, "tensorrt", adapter.adapt(make_bindings(simulation)))
    return Machine(simulation, tmp_path)


def test_stand_in_has_what_the_real_bindings_have_and_nothing_else() -> None:
    bindings = make_bindings(Simulation(version=RELEASE))

    kinds = {name: kind for name, kind in vars(bindings).items() if isinstance(kind, type)}
    enumerations = {name: kind for name, kind in kinds.items() if issubclass(kind, enum.Enum)}
    assert kinds.keys() == API.keys()
    assert {n: {m.name: m.value for m in kind} for n, kind in enumerations.items()} == {n: API[n] for n in enumerations}
    members = {name: public_members(kind).keys() - {"__init__"} for name, kind in kinds.items()}
    assert {n: found for n in kinds.keys() - enumerations.keys() if (found := members[n] - {*API[n]})} == {}


def test_adapter_passes_for_a_release_that_works_and_names_the_one_below(machine: Machine) -> None:
    assert get_backend("tensorrt").unavailable_reason() is None
    assert machine.tensorrt.__version__ == "10.3.0+8.6.0"


def test_engine_answers_as_onnx_runtime_does_for_any_batch_of_its_profiles(machine: Machine) -> None:
    machine.profiles = [{"image": between((1, 1, 8, 8), (n, 1, 8, 8))} for n in (2, 16)]
    model = machine.load(DIGITS)

    for batch in (1, 16, 2):
        model.check(image=floats(batch, 1, 8, 8, seed=batch))

    assert (model.executable.facts.engine, model.executable.facts.rejected) == ("tensorrt", ())
    assert model.fallbacks == []


def test_requests_of_many_threads_pass_engines_on_both_streams_and_native_nodes(machine: Machine) -> None:
    machine.profiles = [{"x": between((1, 4), (16, 4))}]
    model = machine.load(HYBRID, native_ops=("Softsign",))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: model.check(x=floats(1 + n % 16, 4, seed=n)), range(32)))

    assert (model.executable.facts.segments, model.fallbacks) == (3, [])


@pytest.mark.parametrize(("graph", "flag"), [(HALF, "FP16"), (QUANTIZED, "INT8")])
def test_builder_may_use_the_types_of_the_model(machine: Machine, graph: str, flag: str) -> None:
    machine.engine(graph)

    plan = Plan.from_bytes(machine.plan)
    assert [name for name in plan.flags if name in ("FP16", "INT8")] == [flag]
    assert plan.settings["tactics"] == 0b11000  # none of cuBLAS, cuBLASLt and cuDNN
    assert plan.settings["features"] == dict.fromkeys(adapter.FEATURES, True)


def test_result_of_unknown_size_comes_by_an_output_allocator_through_int64_inside(machine: Machine) -> None:
    graph = "g (float[6] x) => (float[1, M] y) { a = Relu(x) b = NonZero(a) y = Cast<to=1>(b) }"
    model = machine.load(graph, allow=(Allowance.DATA_DEPENDENT,))

    for values in ([0, 1, 0, 2, 3, 0], [1, 0, 0, 0, 0, 0]):
        model.check(x=np.array(values, np.float32))

    assert (model.executable.facts.segments, model.fallbacks) == (1, [])


def test_int64_at_the_border_of_an_engine_is_refused_by_name(machine: Machine) -> None:
    source = "g (int64[2, 4] x) => (float[2, 4] y) { a = Abs(x) b = Cast<to=1>(a) y = Exp(b) }"

    model = machine.load(source)

    model.check(x=np.arange(8).reshape(2, 4) - 4)
    (refused, *_) = [native["detail"] for native in model.executable.facts.report["native"]]
    assert "x' is int64 at the border of an engine, and TensorRT 8.6 has int32 alone. Cast it outside." in refused
