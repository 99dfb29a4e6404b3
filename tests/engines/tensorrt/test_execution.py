"""Engines of TensorRT on the streams of a GPU. Both are simulated: nothing here ran on TensorRT or on a GPU."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import gc
import pathlib
import random
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from arrays import floats
from model_texts import parse
from streams import NOTHING, Machine, between
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import Engine
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.backends.stage_times import StageTime
from trtnode.engines.cuda.streams import STREAMS
from trtnode.engines.errors import OutOfRangeError
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Graph, specs

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
HYBRID = """g (float[2, 8] x) => (float[2, 8] y, float[2, 8] z) {
    a = Relu(x)
    b = Softsign(a)
    c = Add(b, a)
    y = Exp(c)
    d = Softsign(y)
    z = Mul(d, c)
}"""
"""Engines and native nodes in turn; ``a`` and ``c`` are read by engines other than their own."""

QUANTIZED = """g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y)
<float s = {0.05}, int8 z = {0}, int8[2, 2, 1, 1] w = {1, -2, 3, 4}, int32[2] b = {-700, 1234}, float t = {0.0025}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear(w, s, z)
    c = DequantizeLinear(b, t)
    y = Conv(d, v, c)
}"""
"""A model as quantizers write it for other runtimes: the bias in int32, in steps of input and weight."""

ROWS = "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Exp(a) }"
UNARY = ("Relu", "Tanh", "Sigmoid", "Softsign", "Neg")


def test_network_with_a_dynamic_batch_gives_what_native_execution_gives(machine: Machine) -> None:
    machine.profiles = [{"image": between((1, 1, 8, 8), (16, 1, 8, 8))}]
    model = machine.load(DIGITS)

    for batch in (1, 16, 3, 3, 1):
        model.check(image=floats(batch, 1, 8, 8, seed=batch))

    assert model.executable.facts.engine == "tensorrt"
    assert model.fallbacks == []


def test_each_tensor_crosses_between_host_and_gpu_only_where_it_is_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = machine.driver
    copies: list[str] = []
    for name in ("memcpy_htod_async", "memcpy_dtoh_async"):
        copy = getattr(driver, name)
        monkeypatch.setattr(driver, name, lambda *args, copy=copy, name=name: (copies.append(name), copy(*args)))
    model = machine.load(HYBRID, native_ops=("Softsign",))
    copies.clear()

    model.check(x=floats(2, 8))

    assert copies.count("memcpy_htod_async") == len(["x", "b", "d"])
    assert copies.count("memcpy_dtoh_async") == len(["a", "y", "z"])


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_give_what_native_execution_gives(seed: int, machine: Machine) -> None:
    model = machine.load(random_graph(seed), native_ops=("Softsign", "Neg"))

    for number in range(2):
        model.check(x=floats(3, 4, seed=number))

    assert model.fallbacks == []


def random_graph(seed: int) -> str:
    """A graph of twelve nodes whose last three values are its outputs."""
    rng = random.Random(seed)
    values, lines = ["x"], []
    for number in range(12):
        one, other = rng.choice(values[-4:]), rng.choice(values[-4:])
        call = f"Add({one}, {other})" if rng.random() < 0.4 else f"{rng.choice(UNARY)}({one})"
        lines.append(f"v{number} = {call}")
        values.append(f"v{number}")
    outputs = ", ".join(f"float[3, 4] {name}" for name in values[-3:])
    return f"g (float[3, 4] x) => ({outputs}) {{ {' '.join(lines)} }}"


def test_request_takes_the_smallest_profile_that_fits(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.profiles = [{"x": between((1, 4), (64, 4))}, {"x": between((1, 4), (8, 4))}]
    model = machine.load(ROWS)
    ran: list[int] = []
    context_type = machine.tensorrt.IExecutionContext
    enqueue = context_type.execute_async_v3

    def spy(self: Any, handle: int):
        ran.append(self.active_optimization_profile)
        return enqueue(self, handle)

    monkeypatch.setattr(context_type, "execute_async_v3", spy)
    for rows in (8, 9, 64, 1):
        model.check(x=floats(rows, 4))

    assert ran == [1, 0, 0, 1]


def test_request_outside_all_profiles_is_answered_natively_and_counted(machine: Machine) -> None:
    machine.profiles = [{"x": between((2, 4), (8, 4))}]
    model = machine.load(ROWS)

    for rows in (2, 9, 1, 8):
        model.check(x=floats(rows, 4))

    assert model.fallbacks == ["outside_profiles", "outside_profiles"]


def test_empty_tensors_are_answered_natively(machine: Machine) -> None:
    machine.profiles = [{"x": ShapeRange(min=(0, 4), opt=(2, 4), max=(8, 4))}]
    model = machine.load(ROWS)

    model.check(x=floats(0, 4))
    model.check(x=floats(1, 4))

    assert model.fallbacks == ["empty_tensor"]


def test_shape_that_only_a_run_reveals_is_taken_from_the_allocator(machine: Machine) -> None:
    graph = "g (float[6] x) => (int64[1, M] y) { a = Relu(x) y = NonZero(a) }"
    model = machine.load(graph, allow=(Allowance.DATA_DEPENDENT,))

    for x in ([1, 0, 2, 0, 0, 3], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 4]):
        model.check(x=np.array(x, np.float32))

    assert model.executable.facts.segments == 1
    assert model.fallbacks == []


def test_stage_after_a_revealed_shape_gets_it(machine: Machine) -> None:
    graph = "g (float[6] x) => (int64[1, M] y) { a = NonZero(x) b = Identity(a) c = Add(b, b) y = Abs(c) }"
    model = machine.load(graph, allow=(Allowance.DATA_DEPENDENT,), native_ops=("Add",))

    for x in ([1, 0, 2, 0, 0, 3], [1, 1, 1, 1, 1, 1]):
        model.check(x=np.array(x, np.float32))


def test_float64_is_narrowed_where_the_user_allows_it(machine: Machine) -> None:
    graph = "g (double[2, 3] x) => (double[2, 3] y) { a = Relu(x) b = Abs(a) y = Exp(b) }"
    model = machine.load(graph, allow=(Allowance.NARROW_DOUBLE,), native_ops=("Abs",))

    model.check(x=floats(2, 3).astype(np.float64))

    assert model.executable.facts.segments == 2
    assert model.fallbacks == []


def test_bias_of_a_quantized_model_is_inside_the_engine(machine: Machine) -> None:
    model = machine.load(QUANTIZED)

    model.check(x=floats(1, 2, 3, 3))

    assert model.executable.facts.segments == 1
    assert model.executable.facts.native_nodes == 0
    assert model.fallbacks == []


def test_constant_outputs_and_passed_on_inputs_belong_to_the_caller(machine: Machine) -> None:
    graph = """g (float[2] x) => (float[2] y, float[2] w, float[2] z) <float[2] w = {1, 2}> {
        y = Relu(x) a = Identity(x) z = Identity(a)
    }"""
    model = machine.load(graph)

    model.check(x=floats(2))["w"][:] = 7

    assert model.check(x=floats(2))["w"].tolist() == [1, 2]


def test_times_of_stages_are_told_to_whoever_asks(machine: Machine) -> None:
    model = machine.load(HYBRID, native_ops=("Softsign",))
    times: list[StageTime] = []

    model.executable.run({"x": floats(2, 8)}, times=times)

    assert [stage.is_engine for stage in times] == [True, False, True, False, True]
    assert times == sorted(times, key=lambda stage: stage.began_ns)


def test_engine_runs_by_itself_on_the_buffers_that_it_is_bound_to(machine: Machine) -> None:
    engine = machine.engine("g (float[2, 4] x) => (float[2, 4] y) { a = Relu(x) y = Exp(a) }")
    x, y = floats(2, 4), np.zeros((2, 4), np.float32)

    engine.bind([x], [y])
    engine.run()
    fork = engine.fork()
    fork.bind([x], None)

    np.testing.assert_allclose(y, np.exp(np.maximum(x, 0)), rtol=1e-6)
    assert np.array_equal(fork.run()[0], y)


def test_inputs_that_are_shapes_are_read_on_the_host(machine: Machine, tmp_path: pathlib.Path) -> None:
    engine = reshaping_engine(machine, tmp_path / "reshape.onnx")
    x, results = floats(6, 4), []

    for sizes in ([4, 6], [24, 1], [24, 1], [1, 24]):
        engine.bind([x, np.array(sizes)], None)
        results.append(engine.run()[0])

    assert [result.shape for result in results] == [(4, 6), (24, 1), (24, 1), (1, 24)]
    assert all(np.array_equal(result.ravel(), np.maximum(x, 0).ravel()) for result in results)
    engine.bind([x, np.array([48, 1])], None)
    with pytest.raises(OutOfRangeError, match="built for other shapes"):
        engine.run()


def reshaping_engine(machine: Machine, path: pathlib.Path) -> Engine:
    """An engine whose second input, of 1 to 24 in each element, is a shape."""
    text = "g (float[N, 4] x, int64[2] s) => (float[A, B] y) { a = Relu(x) y = Reshape(a, s) }"
    onnx.save(parse(text), path)
    profile = {"x": between((1, 4), (8, 4)), "s": ShapeRange(min=(1, 1), opt=(4, 6), max=(24, 24))}
    backend = get_backend("tensorrt")
    machine.engine("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    graph = Graph.of(ir.load(path))
    envelope = dataclasses.replace(machine.envelope, inputs=specs(graph.inputs), outputs=specs(graph.outputs))
    return backend.load(backend.build(path, BuildOptions(profiles=(profile,))), envelope)


def test_arena_of_several_models_is_the_largest_need_and_not_their_sum(machine: Machine) -> None:
    graph = "g (float[{n}] x) => (float[{n}] y) {{ a = Relu(x) b = Exp(a) c = Tanh(b) y = Sigmoid(c) }}"
    models = [machine.load(graph.format(n=n)) for n in (256, 1024, 512)]
    arenas = [stream.arena for stream in machine.streams.all]
    needs = [n * 4 * 3 for n in (256, 1024, 512)]

    assert [arena.size for arena in arenas] == [max(needs)] * STREAMS

    models[1].executable.close()
    models[0].check(x=floats(256))
    models[2].check(x=floats(512))
    assert [arena.size for arena in arenas] == [needs[2]] * STREAMS


def test_many_requests_from_many_threads_leave_nothing_behind(machine: Machine) -> None:
    machine.profiles = [{"x": between((1, 4), (8, 4))}, {"x": between((1, 4), (64, 4))}]
    rows = machine.load(ROWS)
    hybrid = machine.load(HYBRID, native_ops=("Softsign",))
    rows.check(x=floats(64, 4))
    hybrid.check(x=floats(2, 8))

    def request(number: int) -> None:
        if number % 3:
            rows.check(x=floats(1 + number % 66, 4, seed=number))
        else:
            hybrid.check(x=floats(2, 8, seed=number))

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        gc.collect()
        list(threads.map(request, range(100)))
        warm = machine.gpu.leaks()
        list(threads.map(request, range(1000)))

    assert set(rows.fallbacks) == {"outside_profiles"}  # 65 and 66 rows
    assert hybrid.fallbacks == []
    assert machine.gpu.leaks() == warm
    rows.executable.close()
    hybrid.executable.close()
    assert machine.gpu.leaks() == NOTHING


def test_model_that_nobody_closes_is_freed_before_the_next_run(machine: Machine) -> None:
    kept = machine.load(ROWS.replace("N", "3"))
    for _ in range(STREAMS):
        kept.check(x=floats(3, 4))
    machine.clean()
    before = machine.gpu.leaks()

    machine.load(HYBRID, native_ops=("Softsign",)).check(x=floats(2, 8))
    gc.collect()
    for _ in range(STREAMS):
        kept.check(x=floats(3, 4))

    assert machine.gpu.leaks() == before
