"""While one compilation measures, no other one of the same cache computes."""

from __future__ import annotations

import pathlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from trtnode.engines.tuning import measuring_turn
from trtnode.engines.tuning.measuring_turn import compiling, measuring

WAIT_S = 60


def test_measurements_never_overlap_with_other_compilations(tmp_path: pathlib.Path) -> None:
    busy, measured, faults = 0, 0, []
    lock = threading.Lock()

    def change(computing: int, alone: int) -> None:
        nonlocal busy, measured
        with lock:
            busy, measured = busy + computing, measured + alone
            if measured > 1 or (measured and busy):
                faults.append((busy, measured))

    def compile_one(_number: int) -> None:
        with compiling(tmp_path):
            change(1, 0)
            time.sleep(0.002)
            change(-1, 0)
            with measuring():
                change(0, 1)
                time.sleep(0.002)
                change(0, -1)
            change(1, 0)
            change(-1, 0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(compile_one, range(24)))

    assert not faults


def test_compilations_run_side_by_side_until_one_measures(tmp_path: pathlib.Path) -> None:
    together = threading.Barrier(2, timeout=WAIT_S)

    def compile_one(_number: int) -> None:
        with compiling(tmp_path):
            together.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, range(2)))


def test_a_compilation_within_another_one_waits_for_nothing(tmp_path: pathlib.Path) -> None:
    with compiling(tmp_path), compiling(tmp_path), measuring():
        pass


def test_without_a_cache_nobody_waits(tmp_path: pathlib.Path) -> None:
    with compiling(None), measuring(), compiling(tmp_path / "missing"), measuring():
        pass


def test_a_compilation_that_hangs_holds_up_no_measurement_for_ever(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_turn, "MOST_WAIT_S", 0.05)
    hangs, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        with compiling(tmp_path):
            hangs.set()
            assert may_end.wait(WAIT_S)

    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(hang)
        assert hangs.wait(WAIT_S)
        with compiling(tmp_path), measuring():
            may_end.set()
        hanging.result()
