"""Has a server load model files that ask for too much: ``python -m benchmarks.attacks.bomb_loads``.

One caller asks for another model meanwhile. Rounds without loads and with them take turns; the table shows its p99.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event

import grpc
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.attacks.bombs import BOMBS
from benchmarks.attacks.server import AttackedServer
from benchmarks.soak.process_stats import StatsSampler, read_stats
from trtnode.bench.load.arguments import amount
from trtnode.bench.server_process import UNLIMITED, inference_call
from trtnode.protos import RepositoryModelLoadRequest, RepositoryModelLoadResponse
from trtnode.serving.cli.command import positive
from trtnode.serving.service.rpc_table import SERVICE_NAME

MOST_MB = 300.0
MOST_REFUSAL_S = 10.0
MOST_RATIO = 2.0
REFUSED = re.compile(r"model 'bomb' is not loaded: (?!.*unexpected)[^\n]+$")


@dataclasses.dataclass(frozen=True, slots=True)
class Refusals:
    """The loads of one round, and their answers.

    Attributes:
        loads: How many were sent.
        accepted: Names of those that were not refused with one sentence.
        longest_s: Time of the longest refusal.
    """

    loads: int
    accepted: list[str]
    longest_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The caller's p99 without loads and with them, in ms, and what the server took.

    Attributes:
        every_s: Time from one load to the next.
        idle_ms: p99 without loads.
        loaded_ms: p99 meanwhile.
        more_mb: Most memory of the serving process beyond that before, in 10^6 bytes.
        refusals: What became of the loads.
    """

    every_s: float
    idle_ms: float
    loaded_ms: float
    more_mb: float
    refusals: Refusals

    @property
    def ratio(self) -> float:
        """p99 with loads over that without."""
        return self.loaded_ms / self.idle_ms

    @property
    def passed(self) -> bool:
        """True if every figure is within its limit."""
        refused = not self.refusals.accepted and self.refusals.longest_s <= MOST_REFUSAL_S
        return refused and self.more_mb <= MOST_MB and self.ratio <= MOST_RATIO


def load_bombs(
    address: str, every_s: float, begun: Event, over: Event, answers: multiprocessing.SimpleQueue[Refusals]
) -> None:
    """Have bombs loaded, one each ``every_s``, each file a new one, until ``over``; then put what became of them."""
    models = {name: make() for name, make in BOMBS.items()}
    accepted, longest, count = [], 0.0, 0
    with grpc.insecure_channel(address, options=UNLIMITED) as channel:
        load = channel.unary_unary(
            f"/{SERVICE_NAME}/RepositoryModelLoad",
            request_serializer=RepositoryModelLoadRequest.SerializeToString,
            response_deserializer=RepositoryModelLoadResponse.FromString,
        )
        begun.set()
        for count, (name, model) in enumerate(itertools.cycle(models.items())):
            started = time.monotonic()
            if over.is_set():
                break
            try:
                load(_request(model, count))
                accepted.append(name)
            except grpc.RpcError as refused:
                if not REFUSED.match(refused.details()):
                    accepted.append(f"{name}: {refused.details()}")
            longest = max(longest, time.monotonic() - started)
            over.wait(max(0.0, started + every_s - time.monotonic()))
    answers.put(Refusals(count, accepted, longest))


def _request(model: onnx.ModelProto, number: int) -> RepositoryModelLoadRequest:
    model.doc_string = str(number)
    request = RepositoryModelLoadRequest(model_name="bomb")
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.onnx"].bytes_param = model.SerializeToString()
    return request


def measure(server: AttackedServer, every_s: float, seconds: float) -> Round:
    """Measure one round, first without loads."""
    address = f"{server.grpc[0]}:{server.grpc[1]}"
    spawn = multiprocessing.get_context("spawn")
    with grpc.insecure_channel(address) as channel:
        ask = inference_call(channel, "digits", {"image": np.zeros((1, 1, 8, 8), np.float32)})
        _p99_ms(ask, 1.0)
        idle_ms, idle_mb = _p99_ms(ask, seconds), read_stats(server.pid).rss_mb
        begun, over, answers = spawn.Event(), spawn.Event(), spawn.SimpleQueue()
        loader = spawn.Process(target=load_bombs, args=(address, every_s, begun, over, answers), daemon=True)
        loader.start()
        begun.wait()
        with StatsSampler(server.pid, 0.1) as sampler:
            loaded_ms = _p99_ms(ask, seconds)
        over.set()
        refusals = answers.get()
        loader.join()
    more_mb = max(sample.rss_mb for sample in sampler.samples) - idle_mb
    return Round(every_s=every_s, idle_ms=idle_ms, loaded_ms=loaded_ms, more_mb=more_mb, refusals=refusals)


def _p99_ms(ask: Callable[[], object], seconds: float) -> float:
    until = time.monotonic() + seconds
    times = []
    while time.monotonic() < until:
        started = time.perf_counter()
        ask()
        times.append(time.perf_counter() - started)
    return float(np.percentile(times, 99)) * 1e3


def main(arguments: list[str]) -> int:
    """Run the rounds; return 0 if all are within the limits, else 1."""
    options = _parser().parse_args(arguments)
    table = Table("a load every", "loads", "longest refusal", "MB over idle", "p99 idle", "p99 meanwhile", "ratio")
    rounds = []
    with (
        tempfile.TemporaryDirectory(prefix="trtnode-bombs-") as folder,
        AttackedServer(pathlib.Path(folder), options.descriptors, workers=1) as server,
    ):
        for _, every_s in itertools.product(range(options.rounds), options.every):
            one = measure(server, every_s, options.seconds)
            rounds.append(one)
            table.add_row(
                f"{every_s:g} s",
                str(one.refusals.loads),
                f"{one.refusals.longest_s:.1f} s",
                f"{one.more_mb:.1f}",
                f"{one.idle_ms:.2f} ms",
                f"{one.loaded_ms:.2f} ms",
                f"{one.ratio:.2f}",
            )
            for name in one.refusals.accepted:
                print(f"not refused as it should be: {name}", file=sys.stderr)
    Console(width=120).print(table)
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(one) for one in rounds], indent=2), encoding="utf-8")
    return 0 if all(one.passed for one in rounds) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks.bomb_loads", description=__doc__)
    parser.add_argument("--seconds", type=amount, default=20.0, help="of each half of a round (default: 20)")
    parser.add_argument("--rounds", type=positive, default=3, help="of each interval (default: 3)")
    parser.add_argument("--every", type=amount, nargs="+", default=[2.0, 0.5], help="seconds between loads (2 0.5)")
    parser.add_argument("--descriptors", type=positive, default=256, help="that the server may open (default: 256)")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
