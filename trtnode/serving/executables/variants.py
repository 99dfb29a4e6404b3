"""Variants of one model: files of one interface that differ in quality and speed. One is chosen when they are loaded.

They are timed in turn on this machine, at the configured concurrency, and the cache keeps what was measured.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from trtnode.engines.artifact.cache import EngineCache, engine_key
from trtnode.engines.tuning.timing import time_in_turn
from trtnode.partitioner.graph.view import TensorSpec, describe
from trtnode.serving.errors import InterfaceError
from trtnode.serving.executables.interface import ServedExecutable

logger = logging.getLogger(__name__)

SECONDS = 1.5
"""About how long the measurement of each variant takes at most; it ends before where the turns are clear."""


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """One file of a model.

    Attributes:
        name: In responses, metrics and logs.
        quality: As configured; more is better.
        executable: Runs it.
    """

    name: str
    quality: float
    executable: ServedExecutable


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """Latency of a variant at the configured concurrency: the median and the 95th percentile, in milliseconds."""

    p50_ms: float
    p95_ms: float


def check_interfaces(model: str, variants: Sequence[Variant]) -> None:
    """Check that the variants of a model have one interface.

    Raises:
        InterfaceError: An input or output differs between two variants.
    """
    for other in variants[1:]:
        if problem := _difference(variants[0], other):
            raise InterfaceError(model, problem)


def choose(model: str, variants: Sequence[Variant], measured: Mapping[str, Latency], target_ms: float) -> Variant:
    """Return the best variant that holds the target, which then describes itself with the figures of all.

    Where none holds it, that is the fastest one; where none was measured, the best.

    Args:
        model: Its name, for the log.
        variants: The best quality first.
        measured: Their latencies by name; empty if they weren't measured.
        target_ms: The latency that the chosen variant should hold, in milliseconds.
    """
    held = [one for one in variants if not measured or measured[one.name].p95_ms <= target_ms]
    if not held:
        logger.warning("Model %r: no variant holds %g ms; the fastest answers", model, target_ms)
    chosen = held[0] if held else min(variants, key=lambda one: measured[one.name].p95_ms)
    times = ", ".join(f"{name} {one.p95_ms:.3g} ms" for name, one in measured.items()) or "none"
    logger.info("Model %r: variant %r answers; measured: %s", model, chosen.name, times)
    figures = [
        {
            "name": one.name,
            "quality": one.quality,
            "answers": one is chosen,
            "holds_target": bool(measured) and one in held,
            **(dataclasses.asdict(measured[one.name]) if measured else {}),
        }
        for one in variants
    ]
    chosen.executable.facts = dataclasses.replace(chosen.executable.facts, variants=figures)
    return chosen


def measure(
    cache: EngineCache,
    parts: Mapping[str, str],
    variants: Sequence[Variant],
    feeds: Mapping[str, np.ndarray],
    at_once: int,
) -> Mapping[str, Latency]:
    """Return the latency of each variant, by name; nothing where one fails on these inputs.

    A latency is the time from the start of ``at_once`` executions to the end of the last. Variants take turns, so
    that a change of the machine's speed hits all of them.

    Args:
        cache: Keeps the figures. What it has isn't measured again.
        parts: Named parts of their key: they stand for the files, their options and this machine.
        variants: Those to measure.
        feeds: Inputs of each execution.
        at_once: Executions at the same time.
    """
    shapes = {name: [str(array.dtype), array.shape] for name, array in feeds.items()}
    key = engine_key(purpose="variants", shapes=repr(shapes), at_once=str(at_once), **parts)
    known = cache.recall(key, lambda record: {name: Latency(**fields) for name, fields in record.items()})
    if known is not None and known.keys() == {one.name for one in variants}:
        return known
    try:
        turns = _time({one.name: one.executable for one in variants}, feeds, at_once)
    except Exception as error:  # zeros need not make sense to a model
        logger.warning("Variants can't be measured: %s", error)
        return {}
    found = {name: Latency(float(np.median(times)), float(np.percentile(times, 95))) for name, times in turns.items()}
    cache.put_record(key, {name: dataclasses.asdict(one) for name, one in found.items()})
    return found


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


def _difference(one: Variant, other: Variant) -> str | None:
    """Return the first tensor that differs between two variants, in a sentence; None if all agree."""
    mine, theirs = _tensors(one), _tensors(other)
    for kind, name in {**mine, **theirs}:
        ours, found = mine.get((kind, name)), theirs.get((kind, name))
        if ours is None or found is None:
            has, lacks = (one, other) if found is None else (other, one)
            return f"{kind} {name!r} of variant {has.name!r} is missing in variant {lacks.name!r}"
        if _form(ours) != _form(found):
            return (
                f"{kind} {name!r} is {describe(ours)} in variant {one.name!r}, but {describe(found)} in variant "
                f"{other.name!r}"
            )
    return None


def _tensors(variant: Variant) -> dict[tuple[str, str], TensorSpec]:
    sides = (("input", variant.executable.inputs), ("output", variant.executable.outputs))
    return {(kind, spec.name): spec for kind, specs in sides for spec in specs}


def _form(spec: TensorSpec) -> object:
    """Return what clients see of a tensor: type, fixed sizes, and whether it may be left out."""
    shape = None if spec.shape is None else tuple(size if isinstance(size, int) else None for size in spec.shape)
    return spec.dtype, shape, spec.optional
