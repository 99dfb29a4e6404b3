"""The memory of a model, planned."""

from __future__ import annotations

import pathlib

import pytest

from model_texts import clean
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.tuning.memory_plan import keeps_memory_pattern, peak_bytes
from workshop import Workshop

KB = 1024


def chain(size: int) -> str:
    return f"g (float[{size}] x) => (float[{size}] y) {{ a = Abs(x) b = Relu(a) c = Exp(b) y = Neg(c) }}"


def plan_of(source: pathlib.Path) -> dict:
    memory = partition_model(source, CompileOptions(engine="native"))[1].as_json()["memory"]
    assert isinstance(memory, dict)
    return memory


@pytest.mark.parametrize(
    ("graph", "peak"),
    [
        pytest.param(chain(256), 2 * KB, id="two-at-a-time-of-a-chain"),
        pytest.param("g (float[256] x) => (float[256] y) { a = Abs(x) b = Exp(a) y = Sum(a, b) }", 3 * KB, id="skip"),
        pytest.param("g (float[256] x) => (float[256] y) { y = Abs(x) }", KB, id="results-without-inputs"),
        pytest.param("g (float[256] x) => (float[1] a, float[1] y) { a = ReduceMax(x) y = Exp(a) }", 128, id="lines"),
    ],
)
def test_results_need_memory_while_they_are_alive(graph: str, peak: int) -> None:
    assert peak_bytes(clean(f'<ir_version: 10, opset_import: ["": 17]> {graph}')) == peak


def test_weights_count(workshop: Workshop) -> None:
    graph = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"

    memory = plan_of(workshop.write(graph))

    assert (memory["weight_bytes"], memory["engine_bytes"]) == (8, None)


@pytest.mark.parametrize(
    ("elements", "pattern"),
    [pytest.param(64 * KB, True, id="half-a-MiB-at-a-time"), pytest.param(256 * KB, False, id="two-MiB-at-a-time")],
)
def test_the_memory_pattern_stays_where_little_is_to_be_saved(workshop: Workshop, elements: int, pattern: bool) -> None:
    memory = plan_of(workshop.write(chain(elements)))

    assert memory["memory_pattern"] is pattern
    assert keeps_memory_pattern(memory) is pattern


def test_a_model_without_a_plan_keeps_the_default() -> None:
    assert keeps_memory_pattern(None)
