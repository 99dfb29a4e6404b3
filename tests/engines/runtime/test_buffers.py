"""Boundary tensors share one block without ever touching each other while they are alive."""

from __future__ import annotations

import itertools
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtnode.engines.runtime.buffers import ALIGNMENT, Lifetime, allocate, plan_offsets

lifetimes = st.builds(
    lambda dtype, shape, first, length: Lifetime(dtype=np.dtype(dtype), shape=shape, first=first, last=first + length),
    dtype=st.sampled_from(["bool", "uint8", "float16", "float32", "int64"]),
    shape=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    first=st.integers(-1, 6),
    length=st.integers(0, 4),
)

plans = st.dictionaries(st.sampled_from(string.ascii_letters), lifetimes, max_size=10)


@settings(max_examples=40)
@given(plan=plans)
def test_tensors_alive_at_the_same_time_never_overlap(plan: dict[str, Lifetime]) -> None:
    offsets, size = plan_offsets(plan)

    assert offsets.keys() == plan.keys()
    for one, other in itertools.combinations(plan, 2):
        if plan[one].first <= plan[other].last and plan[other].first <= plan[one].last:
            ends = offsets[one] + plan[one].size_bytes, offsets[other] + plan[other].size_bytes
            assert ends[0] <= offsets[other] or ends[1] <= offsets[one]
    assert all(offsets[name] + tensor.size_bytes <= size for name, tensor in plan.items())


@settings(max_examples=40)
@given(plan=plans)
def test_every_offset_is_aligned(plan: dict[str, Lifetime]) -> None:
    offsets, _ = plan_offsets(plan)

    assert all(offset % ALIGNMENT == 0 for offset in offsets.values())


@settings(max_examples=40)
@given(plan=plans)
def test_block_is_no_larger_than_all_tensors_together(plan: dict[str, Lifetime]) -> None:
    _, size = plan_offsets(plan)

    assert size <= sum(tensor.size_bytes for tensor in plan.values())


@settings(max_examples=40)
@given(plan=plans)
def test_allocated_buffers_are_aligned_arrays_of_their_own(plan: dict[str, Lifetime]) -> None:
    buffers = allocate(plan)

    for name, tensor in plan.items():
        assert buffers[name].dtype == tensor.dtype
        assert buffers[name].shape == tensor.shape
        assert buffers[name].flags.c_contiguous
        assert buffers[name].ctypes.data % ALIGNMENT == 0
    for one, other in itertools.combinations(plan, 2):
        if plan[one].first <= plan[other].last and plan[other].first <= plan[one].last:
            assert not np.shares_memory(buffers[one], buffers[other])


def test_tensors_that_follow_each_other_share_memory() -> None:
    plan = {
        "a": Lifetime(dtype=np.dtype("float32"), shape=(64,), first=0, last=1),
        "b": Lifetime(dtype=np.dtype("float32"), shape=(32,), first=1, last=2),
        "c": Lifetime(dtype=np.dtype("float32"), shape=(64,), first=2, last=3),
    }

    offsets, size = plan_offsets(plan)

    assert offsets == {"a": 0, "c": 0, "b": 256}
    assert size == 256 + 128


def test_nothing_needs_no_memory() -> None:
    assert plan_offsets({}) == ({}, 0)
    assert allocate({}) == {}


@pytest.mark.parametrize(("shape", "size"), [((), 64), ((0,), 64), ((16,), 64), ((17,), 128)])
def test_sizes_are_whole_cache_lines(shape: tuple[int, ...], size: int) -> None:
    assert Lifetime(dtype=np.dtype("float32"), shape=shape, first=0, last=0).size_bytes == size
