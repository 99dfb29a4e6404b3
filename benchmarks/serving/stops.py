"""Counts what clients see of a server that gets SIGTERM while they call it, errors by kind.

Six threads of tritonclient call a small model in a loop, each over a connection of its own, and one long request runs.
``python -m benchmarks.serving.stops --runs 10`` prints a table; ``--code DIR`` serves the code of another checkout.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy as np
import onnx
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

THREADS = 6
WARM_S = 1.0
"""Time of calls before the signal."""
LONG_TRIPS = 500_000
"""Steps of the loop of the long request, which ends seconds after the signal."""
FAST = "(float[n] x) => (float[n] y) { y = Neg(x) }"
LONG = """(int64 x, float[64, 64] w) => (float[64, 64] y) {
    yes = Constant<value = bool {1}>()
    y = Loop(x, yes, w) <body = step (int64 i, bool go, float[64, 64] s) => (bool on, float[64, 64] t)
        { on = Identity(go) t = Abs(s) }>
}"""
HEALTH = json.dumps({"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}})
WAYS = ("alone", "elsewhere", "health", "http")
"""One server; a second one in the address; the same with health checks of the client; one server over HTTP."""


class Server:
    """A server process of two models, once it is ready."""

    def __init__(self, folder: pathlib.Path, code: pathlib.Path, delay_s: float) -> None:
        config = folder / f"servable{len(list(folder.glob('*.yaml')))}.yaml"
        delay = f", shutdown_delay_s: {delay_s}" if delay_s else ""
        models = "".join(
            f"- {{name: {name}, path: {folder}/{name}.onnx, engine: native}}\n" for name in ("fast", "long")
        )
        config.write_text(f"server: {{grpc: {{port: 0}}, http: {{port: 0}}{delay}}}\nmodels:\n{models}")
        command = [sys.executable, "-m", "trtnode", "serve", "--config", str(config)]
        self.process = subprocess.Popen(command, cwd=code, stderr=subprocess.PIPE, text=True)
        self.grpc = self.http = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "HTTP on " in line:
                self.http = line.rpartition(" ")[2].strip()
            if "ready on " in line:
                self.grpc = line.rpartition(" ")[2].strip()
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def end(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def kind_of(error: Exception) -> str:
    """Return an error's code, and whether the server said it or nobody listened."""
    text = str(error)
    if "the server is stopping" in text:
        return "refused: the server is stopping"
    if any(word in text for word in ("Connection refused", "connect to all addresses", "recvmsg", "Errno 111")):
        return "nobody listens any more"
    status = error.status() if isinstance(error, InferenceServerException) else type(error).__name__
    return f"{status}: {text[-70:]}"


class Clients:
    """Threads that call until they are told to end."""

    def __init__(self, way: str, first: Server, second: Server | None) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.long = ""
        self._way, self._first, self._second = way, first, second
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(THREADS)]
        self._long = threading.Thread(target=self._call_long)
        for thread in (*self._threads, self._long):
            thread.start()

    def end(self) -> None:
        """Wait for the long request, and end the others."""
        self._long.join()
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        kind = triton_http if self._way == "http" else triton
        x = kind.InferInput("x", [4], "FP32")
        x.set_data_from_numpy(np.ones(4, np.float32))
        with self._client() as client:
            while not self._ended.is_set():
                try:
                    client.infer("fast", [x])
                    self.counts["answered"] += 1
                except Exception as error:  # geventhttpclient has its own
                    self.counts[kind_of(error)] += 1

    def _client(self) -> contextlib.AbstractContextManager[triton.InferenceServerClient]:
        if self._way == "http":
            return contextlib.closing(triton_http.InferenceServerClient(self._first.http))
        others = "" if self._second is None else f",{self._second.grpc}"
        options: list[tuple[str, object]] = [("grpc.use_local_subchannel_pool", 1)]
        if self._way == "health":
            options.append(("grpc.service_config", HEALTH))
        address = f"ipv4:{self._first.grpc}{others}"
        return contextlib.closing(triton.InferenceServerClient(address, channel_args=options))

    def _call_long(self) -> None:
        trips, w = triton.InferInput("x", [], "INT64"), triton.InferInput("w", [64, 64], "FP32")
        trips.set_data_from_numpy(np.array(LONG_TRIPS, np.int64))
        w.set_data_from_numpy(np.ones((64, 64), np.float32))
        with contextlib.closing(triton.InferenceServerClient(self._first.grpc)) as client:
            try:
                client.infer("long", [trips, w])
                self.long = "long request answered"
            except InferenceServerException as error:
                self.long = f"long request: {kind_of(error)}"


def run(way: str, folder: pathlib.Path, code: pathlib.Path, delay_s: float) -> collections.Counter[str]:
    """Stop a server under load once, and count what its clients see until it has ended."""
    with contextlib.ExitStack() as ending:
        second = Server(folder, code, 0) if way in ("elsewhere", "health") else None
        if second is not None:
            ending.callback(second.end)
        first = Server(folder, code, delay_s)
        clients = Clients(way, first, second)
        time.sleep(WARM_S)
        first.end()
        clients.end()
    return clients.counts + collections.Counter([clients.long])


@contextlib.contextmanager
def models() -> Iterator[pathlib.Path]:
    """Yield a folder of both models."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model, text in (("fast", FAST), ("long", LONG)):
            onnx.save(
                onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'), folder / f"{model}.onnx"
            )
        yield folder


def main() -> None:
    """Print the counts of all runs, and those of each kind in the worst run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--code", type=pathlib.Path, default=pathlib.Path.cwd())
    parser.add_argument("--delay", type=float, default=0.0, help="server.shutdown_delay_s")
    arguments = parser.parse_args()
    with models() as folder:
        for way in arguments.way or WAYS:
            runs = [run(way, folder, arguments.code, arguments.delay) for _ in range(arguments.runs)]
            for kind in sorted({kind for one in runs for kind in one}):
                counts = [one[kind] for one in runs]
                print(f"| {way} | {kind} | {sum(counts)} | {min(counts)} to {max(counts)} |", flush=True)


if __name__ == "__main__":
    main()
