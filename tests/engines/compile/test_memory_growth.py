"""The memory that a model takes, measured."""

from __future__ import annotations

import functools

import numpy as np

from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.memory_growth import MemoryGrowth, growth_of, measure_memory
from workshop import Workshop

MB = 10**6


def allocate(megabytes: int, *_: object) -> np.ndarray:
    return np.ones(megabytes * MB, np.uint8)


def grow(load_mb: int, run_mb: int) -> MemoryGrowth:
    return growth_of(functools.partial(allocate, load_mb), functools.partial(allocate, run_mb))


def test_loading_and_running_are_told_apart() -> None:
    with SubprocessWorker() as worker:
        growth = worker.call(grow, 60.0, 64, 128)

    assert 60 * MB <= growth.load_bytes <= 80 * MB
    assert 120 * MB <= growth.run_bytes <= 150 * MB
    assert growth.peak_bytes == growth.load_bytes + growth.run_bytes


def test_a_model_that_does_not_load_is_not_measured(workshop: Workshop) -> None:
    missing = workshop.folder / "missing.onnx"

    assert measure_memory(missing, engine="native") is None


def test_a_model_is_loaded_and_run(workshop: Workshop) -> None:
    source = workshop.write("g (float[1048576] x) => (float[1048576] y) { a = Exp(x) y = Neg(a) }")

    growth = measure_memory(source, engine="native")

    assert growth is not None
    assert growth.run_bytes >= 4 * MB
