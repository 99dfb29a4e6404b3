"""Simulated engines keep TensorRT's rules: a mistake gives None, False, an exception or poison, as it does there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from model_texts import parse
from simulated_cuda import POISON
from simulated_tensorrt import Plan
from workbench import BoundContext, Workbench

CHAIN = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Tanh(a) }"
BATCHES = "g (float[N,3] x) => (float[N,3] y) { a = Relu(x) y = Tanh(a) }"
SMALL = {"x": [(1, 3), (2, 3), (4, 3)]}
LARGE = {"x": [(8, 3), (8, 3), (16, 3)]}
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def chain(bench: Workbench) -> BoundContext:
    return bench.context(CHAIN)


def test_results_are_those_of_the_model_and_come_late(bench: Workbench, chain: BoundContext) -> None:
    early = np.empty((2, 3), np.float32)
    chain.give(x=X)
    assert chain.enqueue()

    early[:] = bench.gpu.view(int(chain.memory["y"]), 24).view(np.float32).reshape(2, 3)

    np.testing.assert_allclose(chain.take("y", np.float32), np.tanh(np.maximum(X, 0)), atol=1e-6)
    assert early.tobytes() == bytes([POISON]) * 24


def test_scratch_memory_holds_poison_after_a_run(bench: Workbench, chain: BoundContext) -> None:
    bench.cuda.memset_d8(chain.arena, 0, 256)
    chain.give(x=X)
    chain.enqueue()
    bench.stream.synchronize()

    assert set(bench.gpu.view(int(chain.arena), 256)) == {POISON}


def test_the_version_and_the_plan_say_that_they_are_simulated(bench: Workbench) -> None:
    assert bench.trt.__version__ == "11.4.0.106+simulated"
    assert bytes(bench.build(CHAIN)).startswith(b"simulated TensorRT plan")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda c: c.context.set_tensor_address("x", 0), "address of x is not set", id="null-address"),
        pytest.param(
            lambda c: c.context.set_tensor_address("y", int(c.memory["y"]) + 4), "is not aligned", id="not-aligned"
        ),
        pytest.param(lambda c: c.context.set_device_memory(int(c.arena), 0), "0 bytes of device memory", id="no-arena"),
        pytest.param(lambda c: c.bench.cuda.Context.pop(), "invalid device context", id="no-context"),
        pytest.param(lambda c: setattr(c.bench.stream, "_queue", object()), "invalid resource handle", id="no-stream"),
        pytest.param(lambda c: c.bench.gpu.fail(700), "illegal memory access", id="lost-context"),
    ],
)
def test_an_enqueue_that_can_not_work_gives_false_and_says_why(
    spoil: Callable[..., Any], said: str, bench: Workbench, chain: BoundContext
) -> None:
    queue = bench.stream._queue
    chain.give(x=X)
    spoil(chain)

    accepted = chain.enqueue()
    bench.stream._queue = queue

    assert not accepted
    assert said in bench.said[-1]


def test_an_address_outside_of_device_memory_loses_the_context_later(bench: Workbench, chain: BoundContext) -> None:
    chain.give(x=X)
    chain.context.set_tensor_address("x", 1 << 40)

    assert chain.enqueue()
    with pytest.raises(bench.cuda.LogicError, match="illegal memory access"):
        bench.stream.synchronize()


def test_shapes_that_were_not_set_are_told(bench: Workbench) -> None:
    bound = bench.context(BATCHES, profiles=[SMALL])

    assert bound.context.infer_shapes() == ["x"]
    assert not bound.enqueue()
    assert tuple(bound.context.get_tensor_shape("y")) == (-1, 3)


@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (2, 4), (2,)])
def test_a_shape_outside_of_the_profile_is_refused(shape: tuple[int, ...], bench: Workbench) -> None:
    bound = bench.context(BATCHES, profiles=[SMALL])

    assert not bound.context.set_input_shape("x", shape)
    assert not bound.context.set_input_shape("z", (1, 3))


def test_another_profile_takes_other_shapes_and_forgets_those_before(bench: Workbench) -> None:
    bound = bench.context(BATCHES, profiles=[SMALL, LARGE])
    assert bound.context.set_input_shape("x", (2, 3))

    assert bound.context.set_optimization_profile_async(1, bench.stream.handle)

    assert bound.context.infer_shapes() == ["x"]
    assert bound.context.set_input_shape("x", (16, 3))
    assert tuple(bound.context.get_tensor_shape("y")) == (16, 3)
    assert [bound.engine.get_device_memory_size_for_profile_v2(p) for p in (0, 1)] == [256, 256]
    with pytest.raises(RuntimeError):
        bound.context.set_optimization_profile_async(2, bench.stream.handle)


def test_scratch_memory_grows_with_the_profile(bench: Workbench) -> None:
    wide = {"x": [(1, 3), (1, 3), (100, 3)]}

    engine = bench.engine(BATCHES, profiles=[SMALL, wide])

    assert [engine.get_device_memory_size_for_profile_v2(p) for p in (0, 1)] == [256, 1280]
    assert engine.device_memory_size_v2 == 1280


def test_sizes_of_one_name_must_agree(bench: Workbench) -> None:
    text = "g (float[N,3] x, float[N,3] z) => (float[N,3] y) { y = Add(x, z) }"
    bound = bench.context(text, profiles=[{**SMALL, "z": SMALL["x"]}])
    bound.context.set_input_shape("x", (1, 3))
    bound.context.set_input_shape("z", (2, 3))

    with pytest.raises(RuntimeError):
        bound.context.infer_shapes()
    assert not bound.enqueue()


def test_sizes_are_read_on_the_host_when_a_run_is_asked_for(bench: Workbench) -> None:
    text = "g (float[6] x, int64[2] s) => (float[N,M] y) { a = Reshape(x, s) y = Relu(a) }"
    bound = bench.context(text, profiles=[{}], values={"s": [(1, 1), (2, 3), (6, 6)]})
    sizes = np.array([3, 2])
    bound.give(x=X.ravel())
    assert bound.context.infer_shapes() == ["s"]

    bound.context.set_tensor_address("s", sizes.ctypes.data)
    assert bound.context.infer_shapes() == []
    assert bound.enqueue()
    shape = tuple(bound.context.get_tensor_shape("y"))
    sizes[:] = 7

    assert shape == (3, 2)
    assert not bound.enqueue()
    assert "the value of s is outside of profile 0" in bench.said[-1]


def test_an_input_of_sizes_needs_values_in_the_profile(bench: Workbench) -> None:
    text = "g (float[6] x, int64[2] s) => (float[N,M] y) { y = Reshape(x, s) }"

    assert bench.build(text) is None
    assert bench.build(text, profiles=[{}]) is None


def test_a_varying_shape_without_a_profile_is_not_built(bench: Workbench) -> None:
    assert bench.build(BATCHES) is None
    assert "no optimization profile" in bench.said[-1]


def test_a_float64_output_is_float32_without_a_word(bench: Workbench) -> None:
    engine = bench.engine("g (double[2] x) => (double[2] y) { y = Exp(x) }")

    assert {engine.get_tensor_dtype(name).name for name in ("x", "y")} == {"FLOAT"}


def test_outputs_whose_shape_only_a_run_tells_go_through_an_allocator(bench: Workbench) -> None:
    bound = bench.context("g (float[2,3] x) => (int64[2,N] y) { y = NonZero(x) }")
    shapes: list[tuple[int, ...]] = []

    class Allocator(bench.trt.IOutputAllocator):
        def __init__(self) -> None:
            bench.trt.IOutputAllocator.__init__(self)

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int):
            bound.memory[tensor_name] = bench.cuda.mem_alloc(size)
            return int(bound.memory[tensor_name])

        def notify_shape(self, tensor_name: str, shape: tuple[int, ...]):
            shapes.append(tuple(shape))

    assert tuple(bound.context.get_tensor_shape("y")) == (2, -1)
    assert bound.context.set_output_allocator("y", Allocator())
    bound.give(x=np.array([[0, 1, 0], [1, 0, 0]], np.float32))
    assert bound.enqueue()

    result = np.empty(shapes[0], np.int64)
    bench.cuda.memcpy_dtoh(result, bound.memory["y"])
    assert result.tolist() == [[0, 1], [1, 0]]


def test_what_an_allocator_raises_is_printed_and_lost(bench: Workbench, capfd: pytest.CaptureFixture[str]) -> None:
    bound = bench.context("g (float[2,3] x) => (int64[2,N] y) { y = NonZero(x) }")

    class Allocator(bench.trt.IOutputAllocator):
        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int):
            raise ValueError("no room here")

    bound.context.set_output_allocator("y", Allocator())
    bound.give(x=X)

    assert not bound.enqueue()
    assert "no room here" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda plan: plan[:-40], "corrupt or truncated", id="truncated"),
        pytest.param(lambda plan: plan[:100] + b"!" + plan[101:], "corrupt or truncated", id="corrupted"),
        pytest.param(lambda plan: b"other bytes", "this is no plan", id="no-plan"),
    ],
)
def test_a_damaged_plan_gives_none(spoil: Callable[..., Any], said: str, bench: Workbench) -> None:
    plan = spoil(bytes(bench.build(CHAIN)))

    assert bench.read(plan) is None
    assert said in bench.said[-1]


@pytest.mark.parametrize(
    ("built", "flags", "found", "accepted"),
    [
        pytest.param("11.0.0.114", [], "11.4.0.106", False, id="older"),
        pytest.param("11.0.0.114", ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"], "11.4.0.106", True, id="compatible"),
        pytest.param("11.0.0.114", ["VERSION_COMPATIBLE"], "11.4.0.106", False, id="with-host-code"),
        pytest.param("11.4.0.106", ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"], "11.0.0.114", False, id="newer"),
    ],
)
def test_a_plan_of_another_release_is_read_only_if_it_is_compatible(
    built: str, flags: list[str], found: str, accepted: bool
) -> None:
    plan = Workbench(version=built).build(CHAIN, flags=flags)
    bench = Workbench(version=found)

    engine = bench.read(plan)

    assert (engine is not None) == accepted


@pytest.mark.parametrize(("level", "accepted"), [("NONE", False), ("AMPERE_PLUS", True)])
def test_a_plan_for_another_gpu_is_read_only_if_it_is_compatible(level: str, accepted: bool, bench: Workbench) -> None:
    compatibility = bench.trt.HardwareCompatibilityLevel[level]
    plan = bench.build(CHAIN, hardware_compatibility_level=compatibility)
    bench.gpu.compute_capability = (8, 6)

    engine = bench.read(plan)

    assert (engine is not None) == accepted


def test_an_engine_needs_a_current_context(bench: Workbench) -> None:
    plan = bench.build(CHAIN)
    bench.cuda.Context.pop()

    assert bench.read(plan) is None
    assert "no current context" in bench.said[-1]


def test_weights_are_handed_over_by_address(bench: Workbench) -> None:
    values = np.array([1, 2, 3], np.float32)
    model = parse(" g (float[2,3] x) => (float[2,3] y) <float[3] w = {0, 0, 0}> { y = Mul(x, w) }")
    network = bench.trt.Builder(bench.logger).create_network()
    parser = bench.trt.OnnxParser(network, bench.logger)

    assert parser.load_model_proto(model.SerializeToString())
    assert not parser.load_initializer("v", values.ctypes.data, values.nbytes)
    assert not parser.load_initializer("w", values.ctypes.data, 4)
    assert parser.load_initializer("w", values.ctypes.data, values.nbytes)
    assert parser.parse_model_proto()

    plan = network.builder.build_serialized_network(network, network.builder.create_builder_config())
    weights = onnx.ModelProto.FromString(Plan.from_bytes(plan).model).graph.initializer
    assert onnx.numpy_helper.to_array(weights[0]).tolist() == [1, 2, 3]


def test_two_threads_in_one_context_are_a_misuse(bench: Workbench, chain: BoundContext) -> None:
    entered, left = threading.Event(), threading.Event()

    def hold() -> None:
        with chain.context._alone():
            entered.set()
            left.wait(120)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(120)
    chain.context.set_input_shape("x", (2, 3))
    left.set()
    thread.join()

    assert bench.gpu.misuses == ["two threads use one context at once"]


@pytest.mark.parametrize("waits", [False, True])
def test_scratch_memory_is_not_used_by_two_streams_at_once(waits: bool, bench: Workbench, chain: BoundContext) -> None:
    other, event = bench.context(CHAIN), bench.cuda.Event()
    other.context.set_device_memory(int(chain.arena), 256)
    second = bench.cuda.Stream()
    chain.enqueue()

    if waits:
        event.record(bench.stream)
        second.wait_for_event(event)
    other.context.execute_async_v3(second.handle)
    bench.cuda.Context.synchronize()

    assert bench.gpu.misuses == ([] if waits else ["two streams use the same scratch memory at once"])
