"""Native runs are shared: the engine of a whole model and the compiled file are compared with the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stand_in_workers import InProcessWorker
from trtnode.engines.build import file_check, jobs, native_runs
from trtnode.engines.inputs.input_uses import uses_of
from trtnode.engines.inputs.samples import find_samples
from trtnode.engines.inputs.varied_samples import varied_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop

WHOLE = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Neg(e) }"
IN_PART = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) f = Erf(e) y = Neg(f) }"


@pytest.mark.parametrize(("graph", "times"), [(WHOLE, 1), (IN_PART, 2)], ids=["whole", "in-part"])
def test_the_source_of_a_whole_engine_runs_once(
    graph: str, times: int, workshop: Workshop, in_process: InProcessWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> native_runs.NativeRuns:
        ran.append(args)
        return native_runs.run_natively(*args, **kwargs)

    for module in (jobs, file_check):
        monkeypatch.setattr(module, "run_natively", run)

    compiled = workshop.compile(workshop.write(graph), native_ops=("Erf",), worker=in_process)

    assert compiled.report.segments
    assert len(ran) == times


def test_kept_runs_are_those_of_the_same_file_alone(workshop: Workshop) -> None:
    path = workshop.write(WHOLE)
    sampled = native_runs.SampledModel(path=path, inputs=())
    native_runs.keep_runs(sampled, native_runs.NativeRuns())

    path.write_bytes(path.read_bytes() + b" ")

    assert native_runs.kept_runs(sampled) is None


def shapes_of(workshop: Workshop, graph: str) -> list[tuple[int, ...]]:
    path = workshop.write(graph)
    cleaned, session = clean_up(load_model(path)), NativeSession(path)
    inputs = tuple(TensorSpec.of(value) for value in cleaned.inputs)
    base = find_samples(session, inputs, None)[0]
    found = [base, *(sample.feeds for sample in varied_samples(session, inputs, base, uses_of(cleaned)))]
    return [np.shape(feeds["x"]) for feeds in found]


@pytest.mark.parametrize(
    ("graph", "rows"),
    [
        pytest.param("g (float[N,3,160,160] x) => (float[N,3,160,160] y) { y = Exp(x) }", [1, 2, 1], id="images"),
        pytest.param("g (float[N,3,16,16] x) => (float[N,3,16,16] y) { y = Exp(x) }", [2, 3, 2], id="thumbnails"),
        pytest.param(
            "g (float[N,300,256] x) => (float[4,M] y) <int64[2] s = {4, -1}> { y = Reshape(x, s) }",
            [1, 2, 1],
            id="rows-that-divide",
        ),
        pytest.param(
            "g (float[N,307,257] x) => (float[4,M] y) <int64[2] s = {4, -1}> { y = Reshape(x, s) }",
            [4, 4, 4],
            id="as-many-as-the-model-needs",
        ),
    ],
)
def test_samples_have_few_large_rows(graph: str, rows: list[int], workshop: Workshop) -> None:
    assert [shape[0] for shape in shapes_of(workshop, graph)] == rows
