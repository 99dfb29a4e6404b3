"""The races: which servers run side by side, under which load, and what is asked of them."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from benchmarks.errors import BenchmarkError
from benchmarks.networks import network_file
from benchmarks.serving.bars import CEILING, CEILINGS, ENGINE, OURS, SHARED, WORKERS, Bar, Row, judge
from benchmarks.serving.loads import Figures, Load, PythonClient, Turn
from benchmarks.serving.models import IMAGE_SHAPE, MLP_SIZES, write_image_model, write_mlp
from benchmarks.serving.peers import KSERVE, MLSERVER, TRITON, Peer
from benchmarks.serving.rounds import take_turns
from benchmarks.serving.servers import Served, Target, ceiling, our_server, refusal, served_executable
from engines import Executable
from serving.errors import ConfigError

NATIVE = {"engine": "native", "threads": 1}
"""Small models run in ONNX Runtime on one thread, here as in the peers: the race is one of servers, not of engines."""

BATCHING = {"batching": {"max_batch_size": 32, "max_queue_delay_us": 500}}
RESNET_BATCH, RESNET_CALLERS = 8, 16
RESNET_SECONDS = 4.0
"""Length of a turn, in times that of others: an answer takes a third of a second."""

PEER_CALLERS = IMAGE_CALLERS = 8
SMALL_BARS: Mapping[int, Sequence[Bar]] = {
    1: [
        Bar(what="1 caller: p50", candidate=OURS, baseline=CEILING, limit=1.15, measure="p50_ms"),
        Bar(what="1 caller: p50", candidate=OURS, baseline=TRITON.name, limit=None, measure="p50_ms"),
    ],
    8: [
        Bar(what="8 callers: throughput", candidate=OURS, baseline=CEILING, limit=0.85),
        Bar(what="8 callers: throughput", candidate=OURS, baseline=TRITON.name, limit=None),
    ],
    32: [
        Bar(what="32 callers: throughput", candidate=OURS, baseline=CEILING, limit=0.85),
        Bar(what="32 callers: throughput", candidate=WORKERS, baseline=OURS, limit=1.3),
        Bar(what="32 callers: throughput", candidate=CEILINGS, baseline=CEILING, limit=None),
        Bar(what="32 callers: throughput", candidate=WORKERS, baseline=TRITON.name, limit=None),
    ],
}
"""What is asked by the number of callers."""

PEER_BARS = [
    Bar(what=f"{PEER_CALLERS} callers: throughput", candidate=candidate, baseline=peer.name, limit=limit)
    for candidate, limit in ((OURS, 2.5), (CEILING, None))
    for peer in (MLSERVER, KSERVE)
]
IMAGE_BARS = [
    Bar(what=f"602 KB, {IMAGE_CALLERS} callers: throughput", candidate=OURS, baseline=CEILING, limit=0.85),
    Bar(what=f"602 KB, {IMAGE_CALLERS} callers: throughput", candidate=SHARED, baseline=OURS, limit=1.8),
]
RESNET = f"ResNet-50, batches of {RESNET_BATCH}, {RESNET_CALLERS} callers: throughput"
RESNET_BARS = [
    Bar(what=RESNET, candidate=OURS, baseline=ENGINE, limit=0.95),
    Bar(what=RESNET, candidate=SHARED, baseline=ENGINE, limit=None),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to measure.

    Attributes:
        load: Puts load on servers that describe themselves as Triton does.
        starts: How often the servers are started. Two processes of the same program differ: where its memory came to
            lie alone has made a server 1.7 times as fast with large tensors.
        rounds: How many turns each candidate gets between two starts.
        seconds: Length of a turn.
        peers: Programs of the peers that take part.
        missing: Why each other peer doesn't.
        folder: For files of this run.
        networks: Where built networks are kept.
    """

    load: Load
    starts: int
    rounds: int
    seconds: float
    peers: Mapping[Peer, pathlib.Path]
    missing: Mapping[str, str]
    folder: pathlib.Path
    networks: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a race.

    Attributes:
        title: Model and callers.
        load: What put the load on.
        figures: By candidate, one entry a round.
        rows: The bars.
    """

    title: str
    load: str
    figures: Mapping[str, Sequence[Figures]]
    rows: Sequence[Row]


def run_race(name: str, plan: Plan) -> Iterator[Outcome]:
    """Run a race of ``RACES``, starting the servers several times; its outcomes have the rounds of all starts."""
    starts = []
    for start in range(plan.starts):
        folder = plan.folder / f"{name}-{start}"
        folder.mkdir()
        starts.append(list(RACES[name](dataclasses.replace(plan, folder=folder))))
    for outcomes in zip(*starts, strict=True):
        yield _joined(outcomes)


def small_model(plan: Plan) -> Iterator[Outcome]:
    """A small network under 1, 8 and 32 callers, beside the ceiling and Triton."""
    served = _served(plan, "mlp", (1, MLP_SIZES[0]), write_mlp)
    batched = dataclasses.replace(served, settings={**NATIVE, **BATCHING})
    with contextlib.ExitStack() as stack:
        turns = {
            CEILING: _open(stack, plan.load, ceiling(served, plan.folder)),
            OURS: _open(stack, plan.load, our_server(served, plan.folder)),
        }
        guests = _peers(plan, served, (TRITON,)) | {WORKERS: our_server(batched, plan.folder, workers=2)}
        missing = {**plan.missing, **_open_guests(stack, plan.load, guests, turns)}
        pairs = {WORKERS: turns.pop(WORKERS)} if WORKERS in turns else {}
        pairs[CEILINGS] = _open(stack, plan.load, ceiling(served, plan.folder, processes=2))
        for callers, bars in SMALL_BARS.items():
            runners = turns | pairs if callers == max(SMALL_BARS) else turns
            yield _race(plan, f"small network, {callers} callers", plan.load, runners, callers, bars, missing)


def python_servers(plan: Plan) -> Iterator[Outcome]:
    """The small network beside servers in Python, which perf_analyzer can't measure: they lack ModelConfig."""
    served, load = _served(plan, "mlp", (1, MLP_SIZES[0]), write_mlp), PythonClient()
    with contextlib.ExitStack() as stack:
        turns = {
            CEILING: _open(stack, load, ceiling(served, plan.folder)),
            OURS: _open(stack, load, our_server(served, plan.folder)),
        }
        missing = {**plan.missing, **_open_guests(stack, load, _peers(plan, served, (MLSERVER, KSERVE)), turns)}
        title = f"small network, {PEER_CALLERS} callers"
        yield _race(plan, title, load, turns, PEER_CALLERS, PEER_BARS, missing)


def large_tensors(plan: Plan) -> Iterator[Outcome]:
    """602 KB in and out, in messages and in shared memory."""
    served = _served(plan, "image", (1, *IMAGE_SHAPE), write_image_model)
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_server(served, plan.folder))
        turns = {
            CEILING: _open(stack, plan.load, ceiling(served, plan.folder)),
            **_both_ways(stack, plan.load, ours),
        }
        yield _race(plan, f"602 KB, {IMAGE_CALLERS} callers", plan.load, turns, IMAGE_CALLERS, IMAGE_BARS, {})


def large_model(plan: Plan) -> Iterator[Outcome]:
    """ResNet-50 in batches, beside the same engine in this process."""
    file = network_file("resnet50", plan.networks)
    batching = {"max_batch_size": RESNET_BATCH, "max_queue_delay_us": 10_000}
    served = Served(file=file, shape=(1, *IMAGE_SHAPE), settings={"batching": batching}, input="image")
    load = PythonClient()
    slow = dataclasses.replace(plan, seconds=plan.seconds * RESNET_SECONDS)
    executable = served_executable(served, plan.folder)  # first, so that the server finds the engine in the cache
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_server(served, plan.folder))
        turns = {
            **_both_ways(stack, load, ours),
            ENGINE: in_process(executable, (RESNET_BATCH, *IMAGE_SHAPE)),
        }
        yield _race(slow, f"ResNet-50, {RESNET_CALLERS} callers", load, turns, RESNET_CALLERS, RESNET_BARS, {})


RACES: Mapping[str, Callable[[Plan], Iterator[Outcome]]] = {
    "small": small_model,
    "peers": python_servers,
    "large-tensors": large_tensors,
    "resnet50": large_model,
}
"""The races by name, in order."""


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    first = outcomes[0]
    names = [name for name in first.figures if all(name in one.figures for one in outcomes)]
    figures = {name: [turn for one in outcomes for turn in one.figures[name]] for name in names}
    rows = [
        next((row for row in rows if row.ratio is None), None) or judge([rows[0].bar], figures, {})[0]
        for rows in zip(*(one.rows for one in outcomes), strict=True)
    ]
    return dataclasses.replace(first, figures=figures, rows=rows)


def in_process(executable: Executable, shape: tuple[int, ...]) -> Turn:
    """Return what runs an executable without pause; its throughput is in rows."""
    (spec,) = executable.inputs
    feeds = {spec.name: np.random.default_rng(0).standard_normal(shape, np.float32)}

    def turn(_callers: int, seconds: float) -> Figures:
        times: list[float] = []
        start = now = time.perf_counter()
        while now < start + seconds:
            before = now
            executable.run(feeds)
            now = time.perf_counter()
            times.append(now - before)
        return Figures(throughput_per_s=shape[0] * len(times) / sum(times), p50_ms=float(np.median(times)) * 1000)

    return turn


def _served(plan: Plan, name: str, shape: tuple[int, ...], write: Callable[[pathlib.Path], None]) -> Served:
    file = plan.folder / f"{name}.onnx"
    write(file)
    return Served(file=file, shape=shape, settings=NATIVE)


def _peers(plan: Plan, served: Served, peers: Sequence[Peer]) -> dict[str, contextlib.AbstractContextManager[Target]]:
    return {peer.name: peer.run(plan.peers[peer], served, plan.folder) for peer in peers if peer in plan.peers}


def _open_guests(
    stack: contextlib.ExitStack,
    load: Load,
    servers: Mapping[str, contextlib.AbstractContextManager[Target]],
    turns: dict[str, Turn],
) -> dict[str, str]:
    """Add the turns of servers that may be missing; return why each other one is."""
    missing = {}
    for name, server in servers.items():
        try:
            turns[name] = _open(stack, load, server)
        except ConfigError as error:
            missing[name] = f"{name}: not available: {refusal(error)}"
        except BenchmarkError as error:
            missing[name] = str(error)
    return missing


def _open(stack: contextlib.ExitStack, load: Load, server: contextlib.AbstractContextManager[Target]) -> Turn:
    return stack.enter_context(load.open(stack.enter_context(server)))


def _both_ways(stack: contextlib.ExitStack, load: Load, ours: Target) -> dict[str, Turn]:
    """Load one server with tensors in messages and in shared memory."""
    shared = dataclasses.replace(ours, shared_memory=True)
    return {name: stack.enter_context(load.open(target)) for name, target in ((OURS, ours), (SHARED, shared))}


def _race(
    plan: Plan,
    title: str,
    load: Load,
    turns: Mapping[str, Turn],
    callers: int,
    bars: Sequence[Bar],
    missing: Mapping[str, str],
) -> Outcome:
    for turn in turns.values():
        turn(callers, plan.seconds / 2)  # warms up client and server
    runs = {name: _bound(turn, callers, plan.seconds) for name, turn in turns.items()}
    figures = take_turns(runs, plan.rounds)
    return Outcome(title=title, load=load.name, figures=figures, rows=judge(bars, figures, missing))


def _bound(turn: Turn, callers: int, seconds: float) -> Callable[[], Figures]:
    return lambda: turn(callers, seconds)
