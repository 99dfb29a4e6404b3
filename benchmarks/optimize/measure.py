"""Times a prepared subject, each candidate in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.optimize.subject import PLAIN_LIBRARIES, WITH, WITHOUT, Figures, Subject, request_of
from trtnode.bench.latency.candidate_process import CandidateProcess, Recipe
from trtnode.bench.latency.interleaving import Interleaving, ratio_with_interval
from trtnode.bench.latency.openers import Opener, open_compiled, open_onnxruntime, open_openvino
from trtnode.engines.backends.names import NATIVE

SETTLE_S = 0.08
"""Pause between turns, in which threads of the last one stop spinning."""

TURN_S = 0.1


def measure(root: pathlib.Path, subject: Subject, rounds: int, threads: int | None) -> Figures:
    """Time a subject with rewrites and without in turns; the plain library takes turns with compiled models.

    Raises:
        EngineError: It doesn't run.
    """
    folder = subject.folder(root)
    feeds = request_of(folder)
    with contextlib.ExitStack() as running:
        candidates = [running.enter_context(CandidateProcess(one)) for one in _recipes(subject, folder, threads)]
        processes = {one.recipe.setting: one for one in candidates}
        answers = {kind: processes[kind].answer([feeds])[0] for kind in (WITHOUT, WITH)}
        turns = {kind: functools.partial(process.take_turn, feeds) for kind, process in processes.items()}
        interleaving = Interleaving(turns, seconds_per_turn=TURN_S, settle_s=SETTLE_S)
        interleaving.run(rounds)
    latencies = interleaving.latencies()
    gain, low, high = ratio_with_interval(latencies[WITHOUT], latencies[WITH])
    p50_ms = {kind: times.percentile_ms(50) for kind, times in latencies.items()}
    return Figures(p50_ms=p50_ms, gain=gain, low=low, high=high, error=_error(answers[WITHOUT], answers[WITH]))


def _recipes(subject: Subject, folder: pathlib.Path, threads: int | None) -> Iterator[Recipe]:
    open_plain = PLAIN[subject.engine]
    ours = open_compiled if subject.compiled and subject.engine != NATIVE else open_plain
    recipe = functools.partial(Recipe, engine=subject.engine, threads=threads)
    for kind in (WITHOUT, WITH):
        yield recipe(setting=kind, open=ours, model=folder / f"{kind}.onnx")
    if subject.compiled:
        yield recipe(setting=PLAIN_LIBRARIES[subject.engine], open=open_plain, model=pathlib.Path(subject.source))


def _error(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> float:
    """Return the largest difference of any output over the largest element of that output."""
    floats = [(e, a) for e, a in zip(expected, actual, strict=True) if e.dtype.kind == "f" and e.size]
    return max((float(np.abs(e - a).max() / (np.abs(e).max() or 1)) for e, a in floats), default=0.0)


PLAIN: Mapping[str, Opener] = {NATIVE: open_onnxruntime, "openvino": open_openvino}
"""Openers of the plain libraries."""
