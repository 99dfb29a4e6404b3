"""Scenarios: servers that run side by side, the load on them, and their targets."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from benchmarks.serving.interleaving import take_turns
from benchmarks.serving.load_generators import Load, LoadFigures, LoadTurn, PerfAnalyzer, PythonClient
from benchmarks.serving.models import IMAGE_SHAPE, MLP_SIZES, write_image_model, write_mlp
from benchmarks.serving.peers import KSERVE, MLSERVER, TRITON, PeerServer
from benchmarks.serving.servers import BenchmarkModel, Endpoint, bare_server, our_server, refusal, served_executable
from benchmarks.serving.targets import (
    BARE_SERVER,
    BARE_SERVERS,
    ENGINE,
    INSTANCES,
    OURS,
    SHARED,
    UNARY,
    WORKERS,
    SpeedTarget,
    TargetRow,
    check_targets,
)
from trtnode.bench.errors import BenchmarkError
from trtnode.bench.networks.catalogue import network_file
from trtnode.serving.errors import ConfigError
from trtnode.serving.executables.interface import ServedExecutable

NATIVE = {"engine": "native", "threads": 1}
"""Settings of small models: ONNX Runtime on one thread, as in the peers, so that servers are compared, not engines."""

RESNET_BATCH, RESNET_CALLERS = 8, 16
RESNET_SECONDS = 4.0
"""Factor of a turn's length: an answer takes a third of a second."""

PEER_CALLERS = IMAGE_CALLERS = 8
SMALL_TARGETS: Mapping[int, Sequence[SpeedTarget]] = {
    1: [
        SpeedTarget(what="1 caller: p50", candidate=OURS, baseline=BARE_SERVER, limit=0.87, measure="p50_ms"),
        SpeedTarget(what="1 caller: p50", candidate=OURS, baseline=TRITON.name, limit=0.67, measure="p50_ms"),
    ],
    8: [
        SpeedTarget(what="8 callers: throughput", candidate=OURS, baseline=BARE_SERVER, limit=1.2),
        SpeedTarget(what="8 callers: CPU", candidate=OURS, baseline=BARE_SERVER, limit=0.75, measure="cpu_us"),
        SpeedTarget(what="8 callers: throughput", candidate=OURS, baseline=TRITON.name, limit=1.0),
        SpeedTarget(what="8 callers: CPU", candidate=OURS, baseline=TRITON.name, limit=None, measure="cpu_us"),
    ],
    32: [
        SpeedTarget(what="32 callers: throughput", candidate=OURS, baseline=BARE_SERVER, limit=1.2),
        SpeedTarget(what="32 callers: throughput", candidate=OURS, baseline=TRITON.name, limit=0.75),
        SpeedTarget(what="32 callers: throughput", candidate=WORKERS, baseline=OURS, limit=None),
        SpeedTarget(what="32 callers: throughput", candidate=BARE_SERVERS, baseline=BARE_SERVER, limit=None),
        SpeedTarget(what="32 callers: throughput", candidate=WORKERS, baseline=TRITON.name, limit=0.9),
    ],
}
"""Targets by the number of callers."""

PEER_TARGETS = [
    SpeedTarget(what=f"{PEER_CALLERS} callers: throughput", candidate=candidate, baseline=peer.name, limit=limit)
    for candidate, limit in ((OURS, 2.6), (BARE_SERVER, None))
    for peer in (MLSERVER, KSERVE)
]
IMAGE_TARGETS = [
    SpeedTarget(what=f"602 KB, {IMAGE_CALLERS} callers: throughput", candidate=OURS, baseline=BARE_SERVER, limit=0.85),
    SpeedTarget(what=f"602 KB, {IMAGE_CALLERS} callers: throughput", candidate=SHARED, baseline=OURS, limit=1.8),
]
RESNET = f"ResNet-50, batches of {RESNET_BATCH}, {RESNET_CALLERS} callers: throughput"
RESNET_TARGETS = [
    SpeedTarget(what=RESNET, candidate=INSTANCES, baseline=ENGINE, limit=0.97),
    SpeedTarget(what=RESNET, candidate=OURS, baseline=ENGINE, limit=None),
    SpeedTarget(what=RESNET, candidate=SHARED, baseline=ENGINE, limit=None),
]

STREAMS: Sequence[tuple[int, int]] = ((1, 1), (1, 8), (8, 8), (8, 64))
"""Streams, and callers that share them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Options of a run.

    Attributes:
        load: Load generator for servers that answer ModelConfig, as Triton does.
        starts: Number of starts of the servers. Two processes of the same program differ, for example in where their
            memory lies.
        rounds: Turns of each candidate between two starts.
        seconds: Length of a turn.
        peers: Programs of the peers that take part.
        missing: Reason of each peer that doesn't.
        folder: For files of this run.
        networks: Folder of the built networks.
    """

    load: Load
    starts: int
    rounds: int
    seconds: float
    peers: Mapping[PeerServer, pathlib.Path]
    missing: Mapping[str, str]
    folder: pathlib.Path
    networks: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """Result of a scenario.

    Attributes:
        title: Model and callers.
        load: Name of the load generator.
        figures: By candidate, one entry per round.
        rows: The targets, each with its measured ratio.
    """

    title: str
    load: str
    figures: Mapping[str, Sequence[LoadFigures]]
    rows: Sequence[TargetRow]

    def as_json(self) -> dict[str, object]:
        """Return the result as JSON values; a row names its target ``bar``."""
        facts = dataclasses.asdict(self)
        return {**facts, "rows": [{"bar": row.pop("target"), **row} for row in facts["rows"]]}


def run_scenario(name: str, plan: RunPlan) -> Iterator[ScenarioResult]:
    """Run a scenario, starting its servers several times; its results have the rounds of all starts."""
    starts = []
    for start in range(plan.starts):
        folder = plan.folder / f"{name}-{start}"
        folder.mkdir()
        starts.append(list(SCENARIOS[name](dataclasses.replace(plan, folder=folder))))
    for results in zip(*starts, strict=True):
        yield _joined(results)


def small_model(plan: RunPlan) -> Iterator[ScenarioResult]:
    """Measure a small network under 1, 8 and 32 callers, beside the bare server and Triton."""
    model = _served(plan, "mlp", (1, MLP_SIZES[0]), write_mlp)
    with contextlib.ExitStack() as stack:
        turns = {
            BARE_SERVER: _open(stack, plan.load, bare_server(model, plan.folder)),
            OURS: _open(stack, plan.load, our_server(model, plan.folder)),
        }
        optional = _peers(plan, model, (TRITON,)) | {WORKERS: our_server(model, plan.folder, workers=2)}
        plan = _with_missing(plan, _open_optional(stack, plan.load, optional, turns))
        pairs = {WORKERS: turns.pop(WORKERS)} if WORKERS in turns else {}
        pairs[BARE_SERVERS] = _open(stack, plan.load, bare_server(model, plan.folder, processes=2))
        for callers, targets in SMALL_TARGETS.items():
            runners = turns | pairs if callers == max(SMALL_TARGETS) else turns
            yield _measure(plan, f"small network, {callers} callers", runners, callers, targets)


def python_servers(plan: RunPlan) -> Iterator[ScenarioResult]:
    """Measure the small network beside servers in Python, which lack the RPC ModelConfig that perf_analyzer needs."""
    plan = dataclasses.replace(plan, load=PythonClient())
    model = _served(plan, "mlp", (1, MLP_SIZES[0]), write_mlp)
    with contextlib.ExitStack() as stack:
        turns = {
            BARE_SERVER: _open(stack, plan.load, bare_server(model, plan.folder)),
            OURS: _open(stack, plan.load, our_server(model, plan.folder)),
        }
        optional = _peers(plan, model, (MLSERVER, KSERVE))
        plan = _with_missing(plan, _open_optional(stack, plan.load, optional, turns))
        yield _measure(plan, f"small network, {PEER_CALLERS} callers", turns, PEER_CALLERS, PEER_TARGETS)


def streamed(plan: RunPlan) -> Iterator[ScenarioResult]:
    """Measure the small network in inference streams, beside the same requests as calls of their own."""
    model = _served(plan, "mlp", (1, MLP_SIZES[0]), write_mlp)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(our_server(model, plan.folder)) if isinstance(plan.load, PerfAnalyzer) else None
        plan = _with_missing(plan, {OURS: "Streams need perf_analyzer: a client in Python is slower than the server."})
        for streams, callers in STREAMS:
            turns = {
                name: stack.enter_context(plan.load.open(dataclasses.replace(server, streams=shared)))
                for name, shared in {UNARY: 0, OURS: streams}.items()
                if server is not None
            }
            title = f"small network, {callers} callers on {streams} streams"
            yield _measure(plan, title, turns, callers, stream_targets(streams, callers))


def stream_targets(streams: int, callers: int) -> list[SpeedTarget]:
    """Return the targets of callers that share streams."""
    what = f"{callers} callers on {streams} streams"
    return [
        SpeedTarget(what=f"{what}: throughput", candidate=OURS, baseline=UNARY, limit=None),
        SpeedTarget(what=f"{what}: CPU", candidate=OURS, baseline=UNARY, limit=None, measure="cpu_us"),
    ]


def large_tensors(plan: RunPlan) -> Iterator[ScenarioResult]:
    """Measure 602 KB in and out, in messages and in shared memory."""
    model = _served(plan, "image", (1, *IMAGE_SHAPE), write_image_model)
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_server(model, plan.folder))
        turns = {
            BARE_SERVER: _open(stack, plan.load, bare_server(model, plan.folder)),
            **_both_ways(stack, plan.load, ours),
        }
        yield _measure(plan, f"602 KB, {IMAGE_CALLERS} callers", turns, IMAGE_CALLERS, IMAGE_TARGETS)


def large_model(plan: RunPlan) -> Iterator[ScenarioResult]:
    """Measure ResNet-50 in batches, beside the same engine in this process."""
    file = network_file("resnet50", plan.networks)
    batching = {"max_batch_size": RESNET_BATCH, "max_queue_delay_us": 10_000}
    model = BenchmarkModel(file=file, shape=(1, *IMAGE_SHAPE), settings={"batching": batching}, input="image")
    spread = {"batching": batching, "instances": len(os.sched_getaffinity(0)), "threads": 1}
    plan = dataclasses.replace(plan, load=PythonClient(), seconds=plan.seconds * RESNET_SECONDS)
    executable = served_executable(model, plan.folder)  # first, so that the server finds the engine in the cache
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_server(model, plan.folder))
        several = our_server(dataclasses.replace(model, settings=spread), plan.folder)
        turns = {
            **_both_ways(stack, plan.load, ours),
            INSTANCES: _open(stack, plan.load, several),
            ENGINE: in_process(executable, (RESNET_BATCH, *IMAGE_SHAPE)),
        }
        yield _measure(plan, f"ResNet-50, {RESNET_CALLERS} callers", turns, RESNET_CALLERS, RESNET_TARGETS)


SCENARIOS: Mapping[str, Callable[[RunPlan], Iterator[ScenarioResult]]] = {
    "small": small_model,
    "peers": python_servers,
    "streams": streamed,
    "large-tensors": large_tensors,
    "resnet50": large_model,
}
"""The scenarios by name, in order."""


def _joined(results: Sequence[ScenarioResult]) -> ScenarioResult:
    first = results[0]
    names = [name for name in first.figures if all(name in one.figures for one in results)]
    figures = {name: [turn for one in results for turn in one.figures[name]] for name in names}
    rows = [
        next((row for row in rows if row.ratio is None), None) or check_targets([rows[0].target], figures, {})[0]
        for rows in zip(*(one.rows for one in results), strict=True)
    ]
    return dataclasses.replace(first, figures=figures, rows=rows)


def in_process(executable: ServedExecutable, shape: tuple[int, ...]) -> LoadTurn:
    """Return turns that run an executable without pause; their throughput counts rows."""
    (spec,) = executable.inputs
    feeds = {spec.name: np.random.default_rng(0).standard_normal(shape, np.float32)}

    def turn(_callers: int, seconds: float) -> LoadFigures:
        times: list[float] = []
        start = now = time.perf_counter()
        while now < start + seconds:
            before = now
            executable.run(feeds)
            now = time.perf_counter()
            times.append(now - before)
        return LoadFigures(throughput_per_s=shape[0] * len(times) / sum(times), p50_ms=float(np.median(times)) * 1000)

    return turn


def _served(plan: RunPlan, name: str, shape: tuple[int, ...], write: Callable[[pathlib.Path], None]) -> BenchmarkModel:
    file = plan.folder / f"{name}.onnx"
    write(file)
    return BenchmarkModel(file=file, shape=shape, settings=NATIVE)


def _peers(
    plan: RunPlan, model: BenchmarkModel, peers: Sequence[PeerServer]
) -> dict[str, contextlib.AbstractContextManager[Endpoint]]:
    return {peer.name: peer.run(plan.peers[peer], model, plan.folder) for peer in peers if peer in plan.peers}


def _with_missing(plan: RunPlan, missing: Mapping[str, str]) -> RunPlan:
    return dataclasses.replace(plan, missing={**plan.missing, **missing})


def _open_optional(
    stack: contextlib.ExitStack,
    load: Load,
    servers: Mapping[str, contextlib.AbstractContextManager[Endpoint]],
    turns: dict[str, LoadTurn],
) -> dict[str, str]:
    """Add the turns of servers that may be missing; return the reason of each missing one."""
    missing = {}
    for name, server in servers.items():
        try:
            turns[name] = _open(stack, load, server)
        except ConfigError as error:
            missing[name] = f"{name}: not available: {refusal(error)}"
        except BenchmarkError as error:
            missing[name] = str(error)
    return missing


def _open(stack: contextlib.ExitStack, load: Load, server: contextlib.AbstractContextManager[Endpoint]) -> LoadTurn:
    return stack.enter_context(load.open(stack.enter_context(server)))


def _both_ways(stack: contextlib.ExitStack, load: Load, ours: Endpoint) -> dict[str, LoadTurn]:
    """Prepare load on one server with tensors in messages and in shared memory."""
    shared = dataclasses.replace(ours, shared_memory=True)
    return {name: stack.enter_context(load.open(endpoint)) for name, endpoint in ((OURS, ours), (SHARED, shared))}


def _measure(
    plan: RunPlan,
    title: str,
    turns: Mapping[str, LoadTurn],
    callers: int,
    targets: Sequence[SpeedTarget],
) -> ScenarioResult:
    for turn in turns.values():
        turn(callers, plan.seconds / 2)  # warms up client and server
    runs = {name: functools.partial(turn, callers, plan.seconds) for name, turn in turns.items()}
    figures = take_turns(runs, plan.rounds)
    rows = check_targets(targets, figures, plan.missing)
    return ScenarioResult(title=title, load=plan.load.name, figures=figures, rows=rows)
