"""Times engines and whole models in turn, so that a change of the machine's speed hits all of them.

All ``measure_`` functions are jobs: the worker runs them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trtnode.engines.backends.progress import Progress, report
from trtnode.engines.backends.protocols import Engine
from trtnode.engines.build.file_check import AsRunner, take_open
from trtnode.engines.build.native_runs import forget_runs
from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.process_memory import give_back_free_pages
from trtnode.engines.runtime.buffers import input_buffer
from trtnode.engines.runtime.engine_loading import load_engine_file, open_engine
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.engines.runtime.options import SHARED
from trtnode.engines.runtime.plan import native_stage_model, plan_stages
from trtnode.engines.runtime.plan_loading import interface_constants
from trtnode.engines.tuning.candidates import DIFFERS, Border, border_between
from trtnode.engines.tuning.decision import LEAD, decide, is_clear, is_far
from trtnode.engines.tuning.timing_inputs import (
    SMALL,
    Samples,
    Subject,
    elements_of,
    generated_inputs,
    timing_inputs,
    with_one_row,
)
from trtnode.partitioner.compiled.trtnode import view_with_engines
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model

MEASURING = "Measuring"
"""Phase of progress; its steps are turns."""

ROUNDS = 41
"""Turns that each call gets. They are many and short, so that neighbours meet the same load of the machine."""

FEWEST_ROUNDS = 5
"""Fewest turns of a call, however long they take."""

PATIENCE = 1.5
"""No further round begins after so many times the time given."""

NAP_S, MOST_NAPS = 0.012, 20
"""Seconds between two looks at threads that may still spin, and the most looks. The system adds up the time of a thread
that computes once a tick, which is up to 10 ms long: in a shorter while, threads that spin seem to rest."""

HOPELESS, BEARABLE_S = 4.0, 0.1
"""A call takes no turns if it takes so many times as long as the quickest one, and longer than so many seconds."""

BRIEF_TURN_S, MOST_ROUNDS, FEW_PATIENCE = 0.05, 99, 2.0
"""Seconds that a turn of a brief measurement takes, about; its most rounds; and how many times the time given it may
take while there were too few rounds for a clear decision, as in a model that takes a tenth of a second."""

COLD_S = 0.1
"""A call that takes longer is timed at once in a brief measurement: to read weights into caches is little of it."""

FIRST_SHARE = 0.25
"""A brief measurement doesn't repeat a call whose first run takes so much of its time; the first one counts."""

UNDISTURBED = 0.5
"""A process that computes without neighbours has more of a core than that: one, or several."""

QUICK_TURN_S, QUICK_TURNS = 0.002, 5
"""Seconds of a turn of a quick model, and how many it gets; the quickest one counts."""

LEAST_SHARE = 0.25
"""A brief measurement takes so much of its time even where loading the model took all of it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Times of calls that took turns.

    Attributes:
        turns: ms of each turn, by name of the call. Turns with the same index were next to each other.
        disturbed: True if other programs had most of the processor meanwhile.
        sizes: Number of inputs of unlike sizes that took turns as well; times are their mean.
        border: Below it, requests are faster without engines; None where there is none, or nobody looked.
    """

    turns: Mapping[str, Sequence[float]]
    disturbed: bool = False
    sizes: int = 1
    border: Border | None = None


def measure_native(subject: Subject) -> float | None:
    """Return the ms of a native run of a quick model; None if no inputs are found.

    Raises:
        EngineError: It fails on these inputs.
    """
    native = _open_candidate(subject, ())
    samples = subject.samples(AsRunner(native))
    if not samples:
        return None
    call = functools.partial(native.run, samples[0])
    seconds = _estimate(call, BRIEF_TURN_S, once=True)
    if seconds > QUICK_TURN_S:
        return 1e3 * seconds
    return min(_quartile_ms(call, int(QUICK_TURN_S / seconds)) for _ in range(QUICK_TURNS))


def measure_segments(subject: Subject, seconds: float) -> dict[str, dict[str, list[float]]] | None:
    """Time each segment's engine against the same nodes natively, on the inputs that they get inside the model.

    Args:
        subject: The model.
        seconds: About how long all of it takes, loading included; the last segments may have no times then.

    Returns:
        Medians of turns in ms under ``engine`` and ``native``, by segment; None if no inputs are found.

    Raises:
        EngineError: Something fails on these inputs.
    """
    began = time.monotonic()
    samples = subject.samples(_source_session(subject))
    if not samples:
        return None
    graph = view_with_engines(load_model(subject.compiled))
    stages = plan_stages(graph, {node.name: True for node in graph.nodes})
    share = seconds / sum(stage.is_engine for stage in stages)
    values = {**interface_constants(graph), **samples[0]}
    times: dict[str, dict[str, list[float]]] = {}
    for stage in stages:
        if time.monotonic() - began > seconds:
            break
        session = NativeSession(native_stage_model(graph, stage), threads=subject.run.threads, name=stage.name)
        given = {name: values[name] for name in session.inputs if name in values}
        values.update(zip(session.outputs, session.run(given), strict=True))
        if stage.is_engine:
            _, engine = open_engine(
                graph, stage.nodes[0], subject.compiled.parent, dataclasses.replace(SHARED, threads=subject.run.threads)
            )
            calls = {"native": _native_call(session, values), "engine": _engine_call(engine, [values])}
            times[stage.name] = time_in_turn(calls, seconds=share, brief=True)
    return times


def measure_candidates(subject: Subject, kept: Mapping[str, Sequence[str]], seconds: float) -> Timed | None:
    """Time a model with some of its engines against the model with others.

    Args:
        subject: The model.
        kept: Segments that run in their engines, by name of the candidate; none runs the source natively.
        seconds: About how long all of it takes, loading included; less where it is clear how each compares with the
            first.

    Returns:
        Turns by name of the candidate; None if no inputs are found.

    Raises:
        EngineError: Something fails on these inputs.
    """
    began = time.monotonic()
    forget_runs()
    open_all = functools.cache(lambda: {name: _open_candidate(subject, segments) for name, segments in kept.items()})
    searched = any(spec.static_shape is None for spec in with_one_row(subject.inputs))
    samples = subject.samples(_source_session(subject) if searched else AsRunner(open_all()[next(iter(kept))]))
    if not samples:
        return None
    give_back_free_pages()
    timed = _time_on(samples, open_all(), max(LEAST_SHARE * seconds, seconds - (time.monotonic() - began)))
    return dataclasses.replace(timed, border=_find_border(subject, samples, open_all(), timed, seconds))


def _find_border(
    subject: Subject, usual: Sequence[Feeds], opened: Mapping[str, Executable], timed: Timed, seconds: float
) -> Border | None:
    """Time a small request as well where engines gain at the usual size."""
    native, engines = opened
    gain = decide(timed.turns[engines], timed.turns[native])
    if subject.small is None or len(usual) > 1 or not gain.is_gain or gain.middle < DIFFERS:
        return None
    small = generated_inputs(AsRunner(opened[native]), subject.small, SMALL)
    if not small or elements_of(small[0]) >= elements_of(usual[0]):
        return None
    turns = _time_on(small, opened, LEAST_SHARE * seconds).turns
    loss = decide(turns[native], turns[engines])
    return border_between(small[0], usual[0], 1 / loss.middle, gain.middle) if loss.is_gain else None


def measure_files(subject: Subject, files: Mapping[str, pathlib.Path], seconds: float) -> Timed | None:
    """Time compiled files of one model against each other.

    Args:
        subject: The model; its own compiled file counts for nothing.
        files: Compiled files by name.
        seconds: About how long all of it takes.

    Returns:
        Turns by name; None if no inputs are found.

    Raises:
        EngineError: Something fails on these inputs.
    """
    samples = subject.samples(_source_session(subject))
    if not samples:
        return None
    return _time_on(samples, {name: _open(path, subject) for name, path in files.items()}, seconds)


def _time_on(samples: Sequence[Feeds], executables: Mapping[str, Executable], seconds: float) -> Timed:
    def run(executable: Executable) -> None:
        for feeds in samples:
            executable.run(feeds)

    timed = time_briefly({name: functools.partial(run, one) for name, one in executables.items()}, seconds)
    turns = {name: [ms / len(samples) for ms in times] for name, times in timed.turns.items()}
    return dataclasses.replace(timed, turns=turns, sizes=len(samples))


def measure_engines(
    observed: pathlib.Path,
    inputs: Sequence[TensorSpec],
    samples: Samples,
    engines: Mapping[str, Mapping[str, tuple[pathlib.Path, str]]],
    seconds: float,
) -> dict[str, dict[str, list[float]]] | None:
    """Time several engines of each segment against each other, on the inputs that they get inside the model.

    Args:
        observed: The model, with every boundary tensor as an output.
        inputs: The model's inputs.
        samples: Of the user's, given and for calibration, if there are any.
        engines: File and envelope of each engine, by segment and by a name of the engine's.
        seconds: About how long all of it takes.

    Returns:
        Medians of turns in ms, by segment and name; None if no inputs are found.

    Raises:
        EngineError: Something fails on these inputs.
    """
    session = NativeSession(observed, name="the cleaned model")
    found = timing_inputs(session, inputs, *samples)
    if not found:
        return None
    values = [{**feeds, **dict(zip(session.outputs, session.run(feeds), strict=True))} for feeds in found]
    times = {}
    for segment, named in engines.items():
        loaded = {name: load_engine_file(segment, path, envelope) for name, (path, envelope) in named.items()}
        calls = {name: _engine_call(engine, values) for name, engine in loaded.items()}
        times[segment] = time_in_turn(calls, seconds=seconds / len(engines))
    return times


def _open_candidate(subject: Subject, segments: Sequence[str]) -> Executable:
    opened = take_open(subject.compiled, subject.run) if segments else None
    if opened is not None and opened.facts.segments == len(segments):
        return opened
    return _open(subject.compiled if segments else subject.native, subject, only=segments)


def _open(path: pathlib.Path, subject: Subject, *, only: Sequence[str] | None = None) -> Executable:
    return open_executable(load_model(path), path, folder=path.parent, only=only, run=subject.run)


def _source_session(subject: Subject) -> NativeSession:
    """Open the source for a search of inputs. What large ones leave in its arena goes with it."""
    return NativeSession(subject.source, brief=True, packs=False, name=str(subject.source))


def _engine_call(engine: Engine, samples: Sequence[Mapping[str, np.ndarray]]) -> Callable[[], object]:
    fixed = all(spec.static_shape is not None for spec in (*engine.inputs, *engine.outputs))

    def bind(values: Mapping[str, np.ndarray]) -> None:
        outputs = [input_buffer(values, spec) for spec in engine.outputs] if fixed else None
        engine.bind([input_buffer(values, spec) for spec in engine.inputs], outputs)

    def bind_and_run() -> None:
        for values in samples:
            bind(values)
            engine.run()

    bind(samples[0])
    return engine.run if len(samples) == 1 else bind_and_run


def _native_call(session: NativeSession, values: Mapping[str, np.ndarray]) -> Callable[[], object]:
    names = (*session.inputs, *session.outputs)
    buffers = {name: values[name].copy() for name in names}
    if all(array.dtype.kind in "biuf" for array in buffers.values()):
        return session.bind(buffers).run
    return functools.partial(session.run_tensors, {name: buffers[name] for name in session.inputs})


def time_briefly(calls: Mapping[str, Callable[[], object]], seconds: float) -> Timed:
    """Time calls in turn until it is clear how each compares with the first, or time is up."""
    began = _now()
    turns = time_in_turn(calls, seconds=seconds, brief=True)
    return Timed(turns=turns, disturbed=_is_disturbed(began))


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


def _is_disturbed(began: tuple[float, float]) -> bool:
    """Return whether other programs have had most of the processor since ``_now`` told the time."""
    passed, had = (now - then for now, then in zip(_now(), began, strict=True))
    return had < UNDISTURBED * passed


def time_in_turn(
    calls: Mapping[str, Callable[[], object]], *, seconds: float, rounds: int = ROUNDS, brief: bool = False
) -> dict[str, list[float]]:
    """Time calls one after the other, again and again: A B C, B C A, C A B, ...

    One that is hopelessly slow is timed once and takes no turns: emulated bfloat16 can take a minute where float32
    takes a tenth of a second.

    Args:
        calls: Functions without arguments, by name.
        seconds: About how long all of it takes; more for calls of which a few take longer.
        rounds: Number of turns that each gets.
        brief: True makes turns short and begins none after this time, or once it is clear how each call compares with
            the first. Too few turns may take twice the time. Calls that take all of it have one turn.

    Returns:
        The time of each turn in ms, by name: the lower quartile of its calls, which programs beside it disturb less
        than the median. Turns with the same index were next to each other.
    """
    began, watch = time.monotonic(), _now()
    estimates = {name: _estimate(call, seconds, once=brief) for name, call in calls.items()}
    slow = max(HOPELESS * min(estimates.values()), BEARABLE_S)
    order = [name for name in calls if estimates[name] <= slow]
    rounds, turn_s = (MOST_ROUNDS, BRIEF_TURN_S) if brief else (rounds, seconds / rounds / len(order))
    counts = {name: max(1, int(turn_s / estimates[name])) for name in order}
    turns: dict[str, list[float]] = {name: [] for name in order}
    round_s = sum(estimates[name] for name in order)
    warms = not brief or round_s <= min(len(order) * COLD_S, FEW_PATIENCE * seconds / (2 * LEAD))
    fewest, deadline, last = FEWEST_ROUNDS, time.monotonic() + PATIENCE * seconds, math.inf
    if brief:
        fewest, deadline, last = LEAD, began + seconds, began + FEW_PATIENCE * seconds - (1 + warms) * round_s
    for done in range(rounds):
        if time.monotonic() > (deadline if done >= fewest else last):
            break
        if brief and _all_clear(turns, few=not _is_disturbed(watch)):
            break
        report(Progress(MEASURING, done, rounds))
        for name in order:
            if warms and not (brief and counts[name] > 1):  # then the first of several calls isn't the one that counts
                calls[name]()  # brings its weights back into the caches after the other calls' turns
            turns[name].append(_quartile_ms(calls[name], counts[name]))
            _let_threads_come_to_rest()
        order = [*order[1:], order[0]]
    report(Progress(MEASURING, rounds, rounds))
    return {name: turns.get(name) or [1e3 * estimates[name]] * (len(turns[order[0]]) or 1) for name in calls}


def _all_clear(turns: Mapping[str, Sequence[float]], *, few: bool) -> bool:
    """Return whether it is clear how each call compares with the first; if ``few`` turns count, they may be enough."""
    first, *others = turns.values()
    return all(is_clear(times, first) or (few and is_far(times, first)) for times in others)


def _estimate(call: Callable[[], object], patience_s: float, *, once: bool) -> float:
    """Return the seconds that a call takes, without the first one, unless that is to be enough where it is slow."""
    first = _quartile_ms(call, 1) / 1e3
    if once and first > FIRST_SHARE * patience_s:
        _let_threads_come_to_rest()
        return first
    again = _quartile_ms(call, 1) / 1e3
    seconds = again if again > (BRIEF_TURN_S if once else patience_s) else _quartile_ms(call, 3) / 1e3
    _let_threads_come_to_rest()
    return seconds


def _let_threads_come_to_rest() -> None:
    """Wait while threads of this process spin; those of ONNX Runtime do so for about 40 ms after a run."""
    for _ in range(MOST_NAPS):
        before = time.process_time()
        time.sleep(NAP_S)
        if time.process_time() - before < NAP_S / 2:
            return


def _quartile_ms(call: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return sorted(times)[count // 4] / 1e6
