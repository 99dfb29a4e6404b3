"""Empty inputs stay in engines that were compared with them, and no others: a decoder's first step is one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from decoders import decoder, first_step, next_step
from edited_models import attribute, edited, with_field
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.reference import ReferenceBackend, ReferenceEngine
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import WorkerError
from trtnode.engines.openvino.indices import may_be_empty
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop

Watch = Callable[[Executable], list[str]]

ROWS = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) y = Neg(e) }"


def test_a_decoder_stays_in_its_engine_from_the_first_token_to_the_last(
    workshop: Workshop, cache: EngineCache, plain: RunPlainly, same: AssertSame, fallbacks: Watch
) -> None:
    source = workshop.write(decoder())
    workshop.compile(source, cache=cache)

    executable = open_model(workshop.compile_file(source, cache=cache))

    assert executable.facts.segments
    reasons = fallbacks(executable)
    feeds = expected = first_step([3, 1, 4])
    for _ in range(20):
        results, answers = executable.run(feeds), plain(source, expected)
        same(results, answers)
        feeds, expected = next_step(feeds, results), next_step(expected, answers)
        assert np.array_equal(feeds["ids"], expected["ids"])
    assert reasons == []


@pytest.mark.parametrize(
    ("graph", "feeds"),
    [
        pytest.param(ROWS, {"x": floats(0, 4)}, id="rows"),
        pytest.param(
            "g (int64[S] i) => (float[S] y) <float[3] w = {2, 1, 0}> { g = Gather(w, i) y = Neg(g) }",
            {"i": np.zeros(0, np.int64)},
            id="indices",
        ),
    ],
)
def test_a_batch_of_nothing_is_answered_by_the_engine(
    graph: str, feeds: dict[str, Any], workshop: Workshop, plain: RunPlainly, same: AssertSame, fallbacks: Watch
) -> None:
    source = workshop.write(graph)
    executable = open_model(workshop.compile_file(source))
    reasons = fallbacks(executable)

    same(executable.run(feeds), plain(source, feeds))

    assert reasons == []


class CrashingOnEmpty(InProcessWorker):
    """A worker whose child crashes as soon as it tries empty inputs."""

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("empty"):
            raise WorkerError(f"The process that ran {function.__name__} crashed (exit code -11).")
        return super().call(function, timeout_s, *args, **kwargs)


@pytest.mark.parametrize("crashing", [False, True], ids=["compared", "crash"])
def test_an_engine_that_does_not_survive_empty_inputs_keeps_the_others(
    crashing: bool, workshop: Workshop, in_process: InProcessWorker, fallbacks: Watch
) -> None:
    worker = CrashingOnEmpty() if crashing else in_process
    executable = open_model(workshop.compile_file(workshop.write(ROWS), worker=worker))
    reasons = fallbacks(executable)

    assert executable.run({"x": floats(0, 4)})["y"].shape == (0, 4)
    assert executable.run({"x": floats(3, 4)})["y"].shape == (3, 4)
    assert reasons == ["empty_tensor"] * crashing


class EngineOfOneRow(ReferenceEngine):
    """Gives a row where there is none."""

    def run(self) -> Sequence[np.ndarray]:
        return [r if r.size else np.zeros((1, 4), r.dtype) for r in super().run()]

    def fork(self) -> EngineOfOneRow:
        return EngineOfOneRow(self._evaluator, self.inputs, self.outputs)


class BackendOfOneRow(ReferenceBackend):
    name = "one-row"

    def load(self, engine: bytes, envelope: Any, *options: Any) -> ReferenceEngine:
        loaded = super().load(engine, envelope, *options)
        return EngineOfOneRow(loaded._evaluator, loaded.inputs, loaded.outputs)


def test_an_engine_that_answers_empty_inputs_wrong_is_used_for_others_alone(
    workshop: Workshop, in_process: InProcessWorker, register: Callable[[type[Any]], None], fallbacks: Watch
) -> None:
    register(BackendOfOneRow)
    compiled = workshop.compile_file(workshop.write(ROWS), engine="one-row", worker=in_process)
    executable = open_model(compiled, run=RunOptions(trust=Trust(allow_unsigned=frozenset({"one-row"}))))
    reasons = fallbacks(executable)

    assert executable.facts.segments == 1
    assert executable.run({"x": floats(0, 4)})["y"].shape == (0, 4)
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)
    assert reasons == ["empty_tensor"]


def test_places_that_were_not_compared_together_are_answered_natively(workshop: Workshop, fallbacks: Watch) -> None:
    executable = workshop.executable("g (float[N,M] x) => (float[N,M] y) { e = Exp(x) y = Neg(e) }")
    reasons = fallbacks(executable)

    shapes = [executable.run({"x": floats(*shape)})["y"].shape for shape in ((0, 4), (4, 0), (0, 0))]

    assert shapes == [(0, 4), (4, 0), (0, 0)]
    assert reasons == ["empty_tensor"]


def with_empty(text: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        envelope = json.loads(attribute(proto.graph.node[0], "envelope").s)
        with_field(options={**envelope["options"], "EMPTY": text})(proto)

    return change


@pytest.mark.parametrize("text", ["", "7", "[[7]]", "[[[0]]]", "[" * 100_000], ids=["none", "7", "one", "two", "deep"])
def test_places_that_cant_be_read_leave_the_nodes_native(text: str, workshop: Workshop) -> None:
    path = edited(workshop.compile_file(workshop.write(ROWS)), with_empty(text))

    executable = open_model(path)

    assert "its envelope can't be read (" in executable.facts.rejected[0]
    assert executable.run({"x": floats(2, 4)})["y"].shape == (2, 4)


@pytest.mark.parametrize(("size", "allowed"), [("N", False), ("M", True)])
def test_a_clamp_gets_no_empty_range(size: str, allowed: bool, workshop: Workshop) -> None:
    source = workshop.write("g (float[N,4] x, int64[M,1] i) => (float[M,4] y) { y = GatherND(x, i) }")

    assert may_be_empty(clean_up(load_model(source)).nodes, {size}) is allowed
