"""The memory of a partition, planned."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.runtime.buffers import Lifetime
from trtnode.engines.tuning.memory_plan import ReusePlan, Spans, keeps_memory_pattern
from trtnode.partitioner.cut.options import PartitionOptions
from workshop import Workshop

KB = 1024


def chain(size: int) -> str:
    return f"g (float[{size}] x) => (float[{size}] y) {{ a = Abs(x) b = Relu(a) c = Exp(b) y = Neg(c) }}"


def plan_of(source: pathlib.Path, engine: str, *native_ops: str) -> dict:
    options = CompileOptions(engine=engine, partition=PartitionOptions(native_ops=native_ops))
    memory = partition_model(source, options)[1].as_json()["memory"]
    assert isinstance(memory, dict)
    return memory


def test_tensors_of_a_chain_need_memory_for_two_at_a_time(workshop: Workshop) -> None:
    memory = plan_of(workshop.write(chain(256)), "native")

    assert memory["native"] == {"tensors": 4, "total_bytes": 4 * KB, "peak_bytes": 2 * KB}
    assert memory["boundary"]["tensors"] == 0
    assert memory["engine_bytes"] is None


def test_boundary_tensors_are_told_apart_from_native_ones(workshop: Workshop) -> None:
    memory = plan_of(workshop.write(chain(256)), "openvino", "Relu", "Exp")

    assert memory["boundary"]["tensors"] == 4
    assert memory["boundary"]["peak_bytes"] < memory["boundary"]["total_bytes"]
    assert memory["native"] == {"tensors": 1, "total_bytes": KB, "peak_bytes": KB}


def test_weights_count(workshop: Workshop) -> None:
    graph = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"

    assert plan_of(workshop.write(graph), "native")["weight_bytes"] == 8


@pytest.mark.parametrize(
    ("elements", "pattern"),
    [pytest.param(64 * KB, True, id="half-a-MiB-at-a-time"), pytest.param(256 * KB, False, id="two-MiB-at-a-time")],
)
def test_the_memory_pattern_stays_where_little_is_to_be_saved(workshop: Workshop, elements: int, pattern: bool) -> None:
    memory = plan_of(workshop.write(chain(elements)), "native")

    assert memory["memory_pattern"] is pattern
    assert keeps_memory_pattern(memory) is pattern


def test_a_model_without_a_plan_keeps_the_default() -> None:
    assert keeps_memory_pattern(None)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(-1, 20), st.integers(0, 10)), max_size=30))
def test_reuse_takes_at_least_what_is_alive_and_at_most_everything(spans: list[tuple[int, int, int]]) -> None:
    lifetimes = [Lifetime(dtype=np.dtype("u1"), shape=(s,), first=f, last=f + n) for s, f, n in spans]

    columns = [(one.size_bytes, one.first, one.last) for one in lifetimes]
    sizes, first, last = np.array(columns, dtype=np.int64).reshape(-1, 3).T

    plan = ReusePlan.of(Spans(sizes=sizes, first=first, last=last))

    alive = [sum(one.size_bytes for one in lifetimes if one.first <= at <= one.last) for at in range(-1, 31)]
    assert plan.peak_bytes == max(alive)
    assert plan.peak_bytes <= plan.total_bytes
