"""Times variants in turn on this machine, at the configured concurrency, and keeps what was measured."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from trtnode.engines.artifact.cache import EngineCache, engine_key
from trtnode.engines.tuning.timing import time_in_turn
from trtnode.serving.executables.interface import ServedExecutable

logger = logging.getLogger(__name__)

SECONDS = 1.5
"""About how long the measurement of each variant takes at most; it ends before where the turns are clear."""


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """Latency of a variant at the configured concurrency: the median and the 95th percentile, in milliseconds."""

    p50_ms: float
    p95_ms: float


def figures(
    cache: EngineCache,
    parts: Mapping[str, str],
    executables: Mapping[str, ServedExecutable],
    feeds: Mapping[str, np.ndarray],
    at_once: int,
) -> Mapping[str, Latency]:
    """Return the latency of each variant, by name; nothing where one fails on these inputs.

    A latency is the time from the start of ``at_once`` executions to the end of the last. Variants take turns, so
    that a change of the machine's speed hits all of them.

    Args:
        cache: Keeps the figures. What it has isn't measured again.
        parts: Named parts of their key: they stand for the files, their options and this machine.
        executables: The variants.
        feeds: Inputs of each execution.
        at_once: Executions at the same time.
    """
    shapes = {name: [str(array.dtype), array.shape] for name, array in feeds.items()}
    key = engine_key(purpose="variants", shapes=repr(shapes), at_once=str(at_once), **parts)
    known = _recall(cache, key)
    if known is not None and known.keys() == executables.keys():
        return known
    try:
        turns = _time(executables, feeds, at_once)
    except Exception as error:  # zeros need not make sense to a model
        logger.warning("Variants can't be measured: %s", error)
        return {}
    found = {name: Latency(float(np.median(times)), float(np.percentile(times, 95))) for name, times in turns.items()}
    cache.put_record(key, {name: dataclasses.asdict(one) for name, one in found.items()})
    return found


def _recall(cache: EngineCache, key: str) -> Mapping[str, Latency] | None:
    record = cache.get_record(key)
    try:
        return None if record is None else {name: Latency(**fields) for name, fields in record.items()}
    except TypeError as error:
        logger.warning("Ignoring damaged figures of variants: %s", error)
        return None


def _time(
    executables: Mapping[str, ServedExecutable], feeds: Mapping[str, np.ndarray], at_once: int
) -> Mapping[str, list[float]]:
    with ThreadPoolExecutor(at_once) as pool:

        def run_all(executable: ServedExecutable) -> None:
            runs: list[Future[object]] = [pool.submit(executable.run, feeds) for _ in range(at_once)]
            wait(runs)
            for run in runs:
                run.result()

        calls = {name: functools.partial(run_all, one) for name, one in executables.items()}
        return time_in_turn(calls, seconds=SECONDS * len(calls), brief=True)
