"""A segment that is refused loses the nodes that cause it, not its engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from comparison import AssertSame, RunPlainly
from faulty_backends import UnreliableBackend
from stand_in_workers import AnyWorker, InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.build.bisection import LEAST_TRIAL_S, Budget, find_culprits
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import BuildError, EngineError, WorkerError
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.segments import Segment, cut
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

pytestmark = pytest.mark.slow

CHAIN = """g (float[2,8] x) => (float[2,8] y) {
    a = Relu(x) b = Neg(a) c = Abs(b) d = Sqrt(c) e = Exp(d) f = Tanh(e) h = Sigmoid(f) y = Neg(h)
}"""
THREE_SEGMENTS = """g (float[2,8] x) => (float[2,8] y) {
    a = Relu(x) b = Neg(a) c = Erf(b) d = Abs(c) e = Sqrt(d) f = Erf(e) h = Tanh(f) y = Neg(h)
}"""
FEEDS = {"x": np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)}


def fail(worker: SubprocessWorker, how: str) -> None:
    """Have a real child refuse, crash or never finish."""
    if how == "crash":
        worker.call(os._exit, 60, 11)
    if how == "hang":
        worker.call(time.sleep, 0.1, 100)
    raise BuildError("It is poisoned.")


class FaultyWorker:
    """A real child that refuses, crashes on or never finishes whatever holds the nodes with these outputs.

    With ``failure``, it says so without doing it again.
    """

    def __init__(
        self, inner: AnyWorker, how: str, holds: Callable[[set[str]], bool], failure: EngineError | None = None
    ) -> None:
        self.inner = inner
        self.how = how
        self.holds = holds
        self.failure = failure
        self.built: list[set[str]] = []

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ != "build":
            return self.inner.call(function, timeout_s, *args, **kwargs)
        outputs = {o for n in onnx.load(args[1], load_external_data=False).graph.node for o in n.output}
        self.built.append(outputs)
        if not self.holds(outputs):
            return self.inner.call(function, timeout_s, *args, **kwargs)
        if self.failure is not None:
            raise self.failure
        return fail(self.inner, self.how)


WORDS = {"refuse": "It is poisoned.", "crash": "crashed (exit code 11)", "hang": "took longer than 0.1 s"}


@pytest.fixture(scope="module")
def failures() -> Mapping[str, EngineError]:
    """Return failures of a child as its parent sees them. Each is brought about once: a child starts slowly."""
    told: dict[str, EngineError] = {}
    with SubprocessWorker() as victim:
        for how in WORDS:
            with pytest.raises(EngineError) as caught:
                fail(victim, how)
            told[how] = caught.value
    return told


def segment_of(workshop: Workshop, graph: str) -> tuple[Graph, Segment]:
    model = Graph.of(load_model(workshop.write(graph)))
    (segment,) = cut(model, [True] * len(model.nodes))
    return model, segment


def refusing(*poison: set[str]) -> Callable[[Segment, float], Refusal | None]:
    """Refuses every part that holds one of these sets of outputs whole."""

    def trial(part: Segment, _: float) -> Refusal | None:
        outputs = {v.name for node in part.nodes for v in node.op.outputs}
        found = [p for p in poison if p <= outputs]
        return Refusal(code=ReasonCode.BUILD_FAILED, detail=f"No {sorted(found[0])}.") if found else None

    return trial


@pytest.mark.parametrize(
    ("poison", "expected"),
    [
        pytest.param([{"a"}], {0: "No ['a']."}, id="first"),
        pytest.param([{"y"}], {7: "No ['y']."}, id="last"),
        pytest.param([{"d"}], {3: "No ['d']."}, id="middle"),
        pytest.param([{"b"}, {"h"}], {1: "No ['b'].", 6: "No ['h']."}, id="two"),
    ],
)
def test_search_ends_at_the_nodes_to_blame(
    poison: list[set[str]], expected: dict[int, str], workshop: Workshop
) -> None:
    graph, segment = segment_of(workshop, CHAIN)
    refusal = Refusal(code=ReasonCode.BUILD_FAILED, detail="No.")

    found = find_culprits(graph, segment, refusal, refusing(*poison), Budget())

    assert {position: detail for position, detail, _ in found.culprits} == expected
    assert found.lasting


@pytest.mark.parametrize(
    ("pair", "last"), [({"a", "y"}, 8), ({"c", "f"}, 5), ({"d", "e"}, 4)], ids=["ends", "across", "neighbours"]
)
def test_last_of_nodes_that_stand_only_apart_is_left_out(pair: set[str], last: int, workshop: Workshop) -> None:
    graph, segment = segment_of(workshop, CHAIN.replace("y = Neg(h)", "i = Neg(h) y = Abs(i)"))
    refusal = Refusal(code=ReasonCode.BUILD_FAILED, detail="No pair.")

    found = find_culprits(graph, segment, refusal, refusing(pair), Budget())

    ((position, detail, _),) = found.culprits
    assert position == last
    assert f"It is refused together with the {last} nodes before it, which are accepted without it: No " in detail


def test_search_for_nodes_that_stand_only_apart_keeps_to_its_budget(workshop: Workshop) -> None:
    graph, segment = segment_of(workshop, CHAIN.replace("y = Neg(h)", "i = Neg(h) y = Abs(i)"))
    refusal = Refusal(code=ReasonCode.BUILD_FAILED, detail="No pair.")

    found = find_culprits(graph, segment, refusal, refusing({"a", "y"}), Budget(trials=3))

    assert [position for position, *_ in found.culprits] == [6, 7, 8]
    assert not found.lasting


@pytest.mark.parametrize("budget", [Budget(trials=2), Budget(seconds=0)])
def test_search_that_costs_too_much_blames_what_is_left(budget: Budget, workshop: Workshop) -> None:
    graph, segment = segment_of(workshop, CHAIN)
    refusal = Refusal(code=ReasonCode.BUILD_FAILED, detail="No.")

    found = find_culprits(graph, segment, refusal, refusing({"d"}), budget)

    assert 3 in {position for position, *_ in found.culprits}
    assert len(found.culprits) in (4, 8)
    assert all("causes it was not searched any further." in detail for _, detail, _ in found.culprits)
    assert not found.lasting


def test_part_whose_trial_takes_too_long_is_not_called_inaccurate(workshop: Workshop) -> None:
    graph, segment = segment_of(workshop, CHAIN)
    given: list[float] = []

    def trial(part: Segment, seconds: float) -> Refusal | None:
        given.append(seconds)
        outputs = {v.name for node in part.nodes for v in node.op.outputs}
        if "b" in outputs:
            return Refusal(code=ReasonCode.INACCURATE, detail="It differs.")
        late = Refusal(code=ReasonCode.CHECK_TIMED_OUT, detail="It took too long.", lasting=False)
        return late if "y" in outputs else None

    refusal = Refusal(code=ReasonCode.INACCURATE, detail="It differs.")
    found = find_culprits(graph, segment, refusal, trial, Budget(seconds=1.0))

    assert [(position, code) for position, _, code in found.culprits] == [
        (1, ReasonCode.INACCURATE),
        (7, ReasonCode.CHECK_TIMED_OUT),
    ]
    assert not found.lasting
    assert set(given) == {LEAST_TRIAL_S}


def test_part_that_computes_from_constants_is_not_tried(workshop: Workshop) -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Neg(w) b = Abs(a) c = Add(x, b) y = Exp(c) }"
    graph, segment = segment_of(workshop, text)
    tried: list[list[str]] = []

    def trial(part: Segment, _: float) -> Refusal | None:
        tried.append([node.op_type for node in part.nodes])
        return refusing({"y"})(part, 0)

    found = find_culprits(graph, segment, Refusal(code=ReasonCode.BUILD_FAILED, detail="No."), trial, Budget())

    assert [position for position, *_ in found.culprits] == [3]
    assert ["Neg", "Abs"] not in tried


@pytest.mark.parametrize("how", WORDS)
def test_only_the_poisoned_node_of_a_long_segment_runs_natively(
    how: str, workshop: Workshop, worker: SubprocessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(CHAIN)

    compiled = workshop.compile(source, worker=FaultyWorker(worker, how, lambda outputs: "d" in outputs))

    (native,) = compiled.report.native
    assert (native.node, native.code) == ("Sqrt:d", ReasonCode.BUILD_FAILED)
    assert WORDS[how] in native.detail
    assert [len(s.nodes) for s in compiled.report.segments] == [3, 4]
    path = workshop.write(compiled.model)
    same(open_model(path).run(FEEDS), plain(source, FEEDS))
    same(plain(path, FEEDS), plain(source, FEEDS))


@pytest.mark.parametrize("how", WORDS)
@pytest.mark.parametrize(
    "segment",
    [
        pytest.param({"a", "b"}, id="first"),
        pytest.param({"d", "e"}, id="second"),
        pytest.param({"h", "y"}, id="third"),
    ],
)
def test_segment_without_any_engine_costs_the_others_nothing(
    segment: set[str],
    how: str,
    workshop: Workshop,
    worker: SubprocessWorker,
    failures: Mapping[str, EngineError],
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    source = workshop.write(THREE_SEGMENTS)
    faulty = FaultyWorker(worker, how, lambda outputs: not outputs.isdisjoint(segment), failures[how])

    compiled = workshop.compile(source, native_ops=("Erf",), worker=faulty)

    failed = [n for n in compiled.report.native if n.code == ReasonCode.BUILD_FAILED]
    assert {n.node.partition(":")[2] for n in failed} == segment
    assert all(WORDS[how] in n.detail for n in failed)
    assert len(compiled.report.segments) == 2
    same(open_model(workshop.write(compiled.model)).run(FEEDS), plain(source, FEEDS))


def test_only_the_node_that_an_engine_computes_wrong_runs_natively(
    unreliable: type[UnreliableBackend],
    in_process: InProcessWorker,
    workshop: Workshop,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    unreliable.miscomputes = ("Sqrt",)
    source = workshop.write(CHAIN)

    compiled = workshop.compile(source, engine="unreliable", worker=in_process)

    (native,) = compiled.report.native
    assert (native.node, native.code) == ("Sqrt:d", ReasonCode.INACCURATE)
    assert "'d' is not what native execution gives" in native.detail
    assert [len(s.nodes) for s in compiled.report.segments] == [3, 4]
    same(open_model(workshop.write(compiled.model)).run(FEEDS), plain(source, FEEDS))


class CrashingChecks:
    """A child that dies whenever it checks the engine of one segment."""

    def __init__(self, inner: AnyWorker, output: str) -> None:
        self.inner = inner
        self.output = output

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "check_segments" and any(self.output in s.envelope for s in args[1]):
            raise WorkerError("The process that ran check_segments crashed (exit code -11).")
        return self.inner.call(function, timeout_s, *args, **kwargs)


def test_engine_that_crashes_its_check_costs_the_others_nothing(
    workshop: Workshop, in_process: InProcessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(THREE_SEGMENTS)
    crashing = CrashingChecks(in_process, '"name":"y"')

    compiled = workshop.compile(source, engine="reference", native_ops=("Erf",), worker=crashing)

    assert [n.node for n in compiled.report.native if n.code == ReasonCode.INACCURATE] == ["Neg:y"]
    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [
        ["Relu", "Neg"],
        ["Abs", "Sqrt"],
        ["Tanh"],
    ]
    same(open_model(workshop.write(compiled.model)).run(FEEDS), plain(source, FEEDS))


def test_second_compilation_searches_nothing(workshop: Workshop, worker: SubprocessWorker, cache: EngineCache) -> None:
    source = workshop.write(CHAIN)
    faulty = FaultyWorker(worker, "refuse", lambda outputs: "d" in outputs)
    first = workshop.compile(source, worker=faulty, cache=cache)
    faulty.built.clear()

    second = workshop.compile(source, worker=faulty, cache=cache)

    assert faulty.built == []
    assert second.report.native == first.report.native
    assert (second.engines_built, second.engines_cached) == (0, 2)


def test_search_in_which_the_child_crashed_is_done_again(
    workshop: Workshop, worker: SubprocessWorker, failures: Mapping[str, EngineError], cache: EngineCache
) -> None:
    source = workshop.write(CHAIN)
    faulty = FaultyWorker(worker, "crash", lambda outputs: "d" in outputs, failures["crash"])
    workshop.compile(source, worker=faulty, cache=cache)

    healthy = workshop.compile(source, cache=cache)

    assert healthy.report.native == ()
    assert len(healthy.report.segments) == 1
