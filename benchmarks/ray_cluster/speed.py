"""The cost of Ray's hops, and the throughput and queues of replicas, next to plain servers on the same machine."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.ray_cluster.echo import ECHO, deploy_echo
from benchmarks.ray_cluster.losses import EXAMPLE, FEEDS
from benchmarks.ray_cluster.queueing import waiting_s
from benchmarks.ray_cluster.raylets import Raylets, processes
from benchmarks.ray_cluster.served import ServedOnRay
from benchmarks.serving.models import IMAGE_SHAPE, write_image_model
from trtnode.bench.load.arrivals import poisson_arrivals
from trtnode.bench.networks.catalogue import network_file, sample_inputs
from trtnode.bench.server_process import SERVICE, UNLIMITED, ServedFile, free_port, inference_request, running_server
from trtnode.engines.artifact.cache_folder import default_cache_folder
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.protos import ModelInferRequest

CALLERS = 8
ON_RAY, ON_ECHO = (("application", "trtnode"),), (("application", ECHO),)
KINDS = {
    "proxy": "ray::ProxyActor",
    "ingress": "ray::ServeReplica:trtnode:~ingress",
    "model": "ray::ServeReplica:trtnode",
}
"""Titles of the processes that a request goes through, the more special ones first."""

REQUESTS = {"digits": FEEDS, "image": {"x": np.zeros((1, *IMAGE_SHAPE), np.float32)}}
"""Inputs of ``write_two_models``."""

Call = Callable[[], object]


@dataclasses.dataclass(slots=True)
class Stage:
    """Servers on this machine: models on Ray, Ray's echo, and plain servers.

    Attributes:
        raylets: The cluster.
        ray: A channel to Ray's proxy.
        plain: Channels to plain servers.
    """

    raylets: Raylets
    ray: grpc.Channel
    plain: Sequence[grpc.Channel]


@contextlib.contextmanager
def open_stage(folder: Path, files: Mapping[str, ServedFile], *, replicas: int, echo: bool) -> Iterator[Stage]:
    """Serve the same files on Ray, and by as many plain servers, whose ports' threads don't all choose one core."""
    raylets = Raylets(folder, nodes=1)
    served = ServedOnRay(folder, raylets.address)
    try:
        with contextlib.ExitStack() as plain:
            channels = []
            for number in range(replicas):
                own = folder / f"plain{number}"
                own.mkdir()
                channels.append(plain.enter_context(running_server(files, own, 1, cores=os.cpu_count())))
            served.start([section(name, one, replicas) for name, one in files.items()], limits={"max_requests": 4096})
            if echo:
                deploy_echo(raylets.address)
            yield Stage(raylets, plain.enter_context(own_connection(served.grpc)), channels)
            served.stop()
    finally:
        served.close()
        raylets.close()


def section(name: str, served: ServedFile, replicas: int) -> Mapping[str, Any]:
    """Return the section of a model whose replicas have a thread each."""
    scaling = {"replicas": replicas, "cpus": 0.5}
    return {"name": name, "path": str(served.file), "engine": served.engine, "threads": 1, "scaling": scaling}


def write_two_models(folder: Path) -> Mapping[str, ServedFile]:
    """Return a model of small requests and one of large ones, for ``REQUESTS``."""
    image = folder / "image.onnx"
    write_image_model(image)
    return {"digits": ServedFile(file=EXAMPLE, engine="native"), "image": ServedFile(file=image, engine="native")}


def latency(folder: Path, rounds: int, requests: int) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the median milliseconds of one caller by model: to a plain server, Ray's echo, and on Ray.

    Args:
        folder: For all files; with a short path.
        rounds: Of all three, in turns; the medians of their medians count.
        requests: In each.
    """
    files = write_two_models(folder)
    with open_stage(folder, files, replicas=1, echo=True) as stage:
        for name in files:
            request = inference_request(name, REQUESTS[name])
            subjects = {
                "plain": call_of(stage.plain[0], request),
                "echo": call_of(stage.ray, request, ON_ECHO),
                "on Ray": call_of(stage.ray, request, ON_RAY),
            }
            found: dict[str, list[float]] = {subject: [] for subject in subjects}
            for _ in range(rounds):
                for subject, call in subjects.items():
                    found[subject].append(statistics.median(milliseconds(call) for _ in range(requests)))
            yield name, {subject: statistics.median(times) for subject, times in found.items()}


def hops(folder: Path, rounds: int, seconds: float) -> Iterator[tuple[str, float]]:
    """Yield answers per second of a small model, in turns, and the processor milliseconds of each answer on Ray.

    Args:
        folder: For all files; with a short path.
        rounds: Of all servers; the medians count.
        seconds: Of each.
    """
    files = {"digits": ServedFile(file=EXAMPLE, engine="native")}
    request, workers, port = inference_request("digits", FEEDS), folder / "workers", free_port()
    workers.mkdir()
    with contextlib.ExitStack() as opened:
        stage = opened.enter_context(open_stage(folder, files, replicas=2, echo=False))
        opened.enter_context(running_server(files, workers, 1, workers=2, port=port))
        connections = [opened.enter_context(own_connection(port)) for _ in range(CALLERS)]  # each has one worker
        subjects = {
            "a plain server": [call_of(stage.plain[0], request)] * CALLERS,
            "a plain server with two workers": [call_of(one, request) for one in connections],
            "two replicas on Ray": [call_of(stage.ray, request)] * CALLERS,
        }
        rates: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(rounds):
            for name, calls in subjects.items():
                before = _processor_s(stage.raylets)
                rates[name].append(closed_loop(calls, seconds))
        spent = _processor_s(stage.raylets)
        count = rates["two replicas on Ray"][-1] * seconds
    yield from ((f"answers/s of {name}", statistics.median(found)) for name, found in rates.items())
    yield from ((f"CPU ms of an answer on Ray, {kind}", 1000 * (spent[kind] - before[kind]) / count) for kind in KINDS)


def own_connection(port: int) -> grpc.Channel:
    """Connect to a port of this machine, by a connection that no other channel has."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=[*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)])


def replicas(folder: Path, rounds: int, seconds: float, loads: Sequence[float]) -> Iterator[tuple[str, float, float]]:
    """Yield what two replicas of ResNet-50 do, each with a core: a name, what was expected, and what was measured.

    Requests per second of two plain servers and on Ray; then the mean milliseconds at parts of that rate, with arrivals
    by chance, next to those of a queue before two servers that take equal times.
    """
    file = folder / "resnet50.onnx"  # compiled once: servers that measure at the same time decide differently
    options = CompileOptions(engine="openvino", all_engines=True, threads=1)
    compile_model(network_file("resnet50", default_cache_folder() or folder), options).save(file)
    request = inference_request("resnet", sample_inputs("resnet50", 1, 0))
    with open_stage(folder, {"resnet": ServedFile(file=file, engine="openvino")}, replicas=2, echo=False) as stage:
        plain, on_ray = [call_of(channel, request) for channel in stage.plain], call_of(stage.ray, request)
        closed_loop([*plain, on_ray], 2)
        rates: dict[str, list[float]] = {"plain": [], "on Ray": []}
        for _ in range(rounds):
            rates["plain"].append(closed_loop(plain * (CALLERS // 2), seconds))
            rates["on Ray"].append(closed_loop([on_ray] * CALLERS, seconds))
        most = statistics.median(rates["on Ray"])
        yield "requests/s", statistics.median(rates["plain"]), most
        alone = statistics.median(milliseconds(on_ray) for _ in range(50))
        for load in loads:
            expected = alone + 1000 * waiting_s(servers=2, service_s=2 / most, load=load)
            yield f"ms at {load:.0%} of that", expected, open_loop(on_ray, load * most, 2 * seconds)


def closed_loop(calls: Sequence[Call], seconds: float) -> float:
    """Return answers per second of callers that each send the next request after an answer."""
    deadline = time.monotonic() + seconds
    counter = itertools.count()

    def work(call: Call) -> None:
        while time.monotonic() < deadline:
            call()
            next(counter)

    began = time.monotonic()
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(counter) / (time.monotonic() - began)


def open_loop(call: Call, rate: float, seconds: float) -> float:
    """Return the mean milliseconds from arrival to answer, where requests arrive by chance."""
    times: list[float] = []
    start = time.monotonic()

    def send(arrival: float) -> None:
        call()
        times.append(time.monotonic() - start - arrival)

    with ThreadPoolExecutor(64) as pool:
        for arrival in itertools.takewhile(lambda at: at < seconds, poisson_arrivals(rate, seed=0)):
            time.sleep(max(0.0, start + arrival - time.monotonic()))
            pool.submit(send, arrival)
    return 1000 * statistics.fmean(times)


def call_of(channel: grpc.Channel, request: ModelInferRequest, metadata: Sequence[tuple[str, str]] = ()) -> Call:
    """Return a function that sends the written request and waits for the bytes of the answer."""
    infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
    message = request.SerializeToString()
    return lambda: infer(message, metadata=metadata)


def milliseconds(call: Call) -> float:
    """Return the time of a call."""
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def _processor_s(raylets: Raylets) -> Mapping[str, float]:
    """Return the processor time so far of each kind of process."""
    found = dict.fromkeys(KINDS, 0.0)
    for kind, title in KINDS.items():
        for pid in (pid for node in raylets.all_nodes() for pid in processes(node, title)):
            user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            found[kind] += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return found
