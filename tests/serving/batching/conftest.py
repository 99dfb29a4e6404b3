"""A server whose model records what it runs."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx_ir
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Running, Starter, given
from trtnode.engines.errors import ExecutionError
from trtnode.engines.model_facts import ModelFacts
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.batching.batcher import DynamicBatcher
from trtnode.serving.batching.concatenation import Feeds
from trtnode.serving.batching.instance_pool import InstancePool
from trtnode.serving.batching.queued_request import Result
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.telemetry.request_stats import Durations

PATIENCE_S = 120
POISON = 666


def outcome_of(
    runner: InstancePool | DynamicBatcher,
    feeds: Feeds,
    options: RequestOptions,
    names: Sequence[str] | None = None,
) -> Mapping[str, np.ndarray]:
    """Wait for the outcome of one request to a model; raise it if it is an error."""
    outcomes: queue.SimpleQueue[Result] = queue.SimpleQueue()
    runner.submit(feeds, names, options, Durations(), outcomes.put)
    outcome = outcomes.get(timeout=PATIENCE_S)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


class Recorder:
    """Adds 1 to ``x``, and keeps what it was given. Fails on the number 666."""

    def __init__(self, columns: int | None = None, first: int | str = "n") -> None:
        self.inputs = (TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=(first, columns)),)
        self.outputs = (TensorSpec(name="y", dtype=onnx_ir.DataType.FLOAT, shape=(first, columns)),)
        self.facts = ModelFacts(native_nodes=1)
        self.on_fallback: Callable[[str], None] = lambda reason: None
        self.executed: list[list[float]] = []
        self.copied: list[bool] = []
        self.aligned: list[bool] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Semaphore(0)

    def needs_native(self, feeds: Mapping[str, np.ndarray]) -> bool:
        return not np.isfinite(feeds["x"]).all()

    def run_checked(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        return self.run(feeds, outputs, times)

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        x = feeds["x"]
        self.executed.append(x[:, 0].tolist())
        self.copied.append(x.flags.writeable)  # requests are read-only views of their messages
        self.aligned.append(x.flags.aligned)
        self.started.release()
        assert self.gate.wait(PATIENCE_S)
        if POISON in x:
            raise ExecutionError("poisoned")
        return {"y": x + np.float32(1)}

    def keep_kernels(self) -> None:
        pass

    def close(self) -> None:
        self.gate.set()

    def forget(self) -> None:
        """Leave out what the server ran while it loaded the model."""
        while self.started.acquire(blocking=False):
            pass
        self.executed.clear()
        self.copied.clear()


class Service:
    """A server with a recorder as its model, and requests to it."""

    def __init__(self, running: Running, fake: Recorder) -> None:
        self.running = running
        self.fake = fake
        self._threads = ThreadPoolExecutor(64)

    def infer(self, *rows: float, columns: int = 1, **options: Any) -> list[float]:
        x = given("x", np.repeat(np.array(rows, np.float32)[:, None], columns, 1))
        result: list[float] = self.running.client.infer("fake", [x], **options).as_numpy("y")[:, 0].tolist()
        return result

    def send(self, *rows: float, **options: Any) -> Future[list[float]]:
        """Send a request, and return once it waits in the queue."""
        waiting = self.waiting()
        answer = self._threads.submit(self.infer, *rows, **options)
        self.wait_for(lambda: self.waiting() > waiting)
        return answer

    def block(self) -> Future[list[float]]:
        """Send a request that runs, and doesn't end before the gate opens."""
        self.fake.gate.clear()
        answer = self._threads.submit(self.infer, 0)
        assert self.fake.started.acquire(timeout=PATIENCE_S)
        return answer

    def waiting(self) -> float:
        return self.sample("nv_inference_pending_request_count")

    def sample(self, name: str, **labels: str) -> float:
        text = generate_latest(self.running.server.metrics.registry).decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the server never got there"
            time.sleep(0.001)


@pytest.fixture
def serve(start: Starter) -> Callable[..., Service]:
    """Start a server with a recorder and the given keys of ``batching``."""

    def start_service(batching: str = "", fake: Recorder | None = None, extra: str = "instances: 1") -> Service:
        recorder = fake or Recorder()
        model = f"- {{name: fake, path: fake.onnx, warmup: 0, {extra}, batching: {{{batching}}}}}\n"
        service = Service(start(model, loader=lambda _: recorder), recorder)
        recorder.forget()
        return service

    return start_service


def fails_with(code: str, answer: Callable[[], Any]) -> str:
    with pytest.raises(InferenceServerException) as caught:
        answer()
    assert caught.value.status() == f"StatusCode.{code}"
    return str(caught.value.message())
