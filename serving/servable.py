"""One loaded model version, its state, and requests to it."""

import contextlib
import enum
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from engines import EngineError, Executable, InvalidInputError
from partitioner import PartitionError
from serving.batch_axis import no_batch_axis, rows_differ_in_company
from serving.batcher import DynamicBatcher, Run
from serving.cores import placed
from serving.errors import CancelledRequestError, InvalidRequestError, ServingError, UnavailableError
from serving.images import ImageDecoder
from serving.metrics import Durations, Execution, ModelCounts, RejectionReason
from serving.model_schema import BatchingConfig, ModelConfig
from serving.pipelines import image_decoders
from serving.queue_terms import QueueTerms
from serving.signature import Signature, WireTensor
from serving.warmup import warm_up

logger = logging.getLogger(__name__)

Loader = Callable[[ModelConfig], Executable]
"""Makes a model ready to run; its errors say what the user can do."""


PATIENCE_S = 0.01
"""How long a request may hold its thread while it waits for an instance, unless others wait longer already."""


class State(enum.StrEnum):
    """What a servable can do, in the protocol's words."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


class Servable:
    """A model version. Thread-safe. It is loaded once and retired once; a reload makes another one.

    Attributes:
        name: The model's name.
        version: Decimal.
        required: Whether the server needs it.
        state: What it can do now.
        reason: Why it is unavailable, or why it was not replaced by what is on disk now.
        counts: What happened to it.
        stand_in: Whether it answers natively only until its engines are built.
    """

    def __init__(
        self,
        config: ModelConfig,
        counts: ModelCounts,
        version: str,
        *,
        on_loss: Callable[[], None],
        stand_in: bool = False,
        files: object = None,
    ) -> None:
        """Describe what to load.

        Args:
            config: How to serve it; the path is that of its file.
            counts: Where to count requests.
            version: Decimal.
            on_loss: Called when it is not ready any more since its engines can't run.
            stand_in: Whether it runs natively, whatever the configuration says.
            files: Kept until the model is freed.
        """
        self.name = config.name
        self.version = version
        self.required = config.required
        self.state = State.LOADING
        self.reason = ""
        self.counts = counts
        self.stand_in = stand_in
        self._config = config.model_copy(update={"engine": "native"}) if stand_in else config
        self._on_loss = on_loss
        self._files = files
        self._users: set[object] = set()
        self._retired = False
        self._unused = threading.Event()
        self._executable: Executable | None = None
        self._run: Run | None = None
        self._facts: Mapping[str, Any] = {}
        self._signature: Signature | None = None
        self._everything: Sequence[WireTensor] | None = None
        self._batcher: DynamicBatcher | None = None
        self._images: Mapping[str, ImageDecoder] = {}
        # One token an instance. A SimpleQueue costs a tenth of a semaphore, whose waiting is written in Python.
        self._instances: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(config.instances):
            self._instances.put(None)
        self._patient: set[object] = set()
        """Stands for requests that have waited long for an instance."""

    @property
    def is_ready(self) -> bool:
        """Whether requests may come."""
        return self.state is State.READY

    @property
    def signature(self) -> Signature:
        """Inputs and outputs.

        Raises:
            UnavailableError: The model isn't ready.
        """
        if self._signature is None:
            raise UnavailableError(f"model {self.name!r} is not ready ({self.state})")
        return self._signature

    @property
    def platform(self) -> str:
        """What runs the model, in the form of Triton's platform names."""
        engine = self._facts.get("engine", "native")
        return "onnxruntime_onnx" if engine == "native" else f"{engine}_onnx"

    @property
    def instances(self) -> int:
        """How many requests, or batches, run at the same time."""
        return self._config.instances

    @property
    def batching(self) -> BatchingConfig | None:
        """How requests are joined; None if they run one by one."""
        return self._config.batching if self._batcher is not None else None

    @property
    def config(self) -> ModelConfig:
        """How it is served; the path is that of its file."""
        return self._config

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the executable says about itself; empty until it is loaded."""
        return self._facts

    def parameters(self) -> dict[str, str]:
        """What an engineer wants to know about the loaded model, for its configuration on the wire."""
        facts = self._facts
        return {
            "engine": str(facts.get("engine", "native")),
            "segments": str(facts.get("segments", 0)),
            "native_nodes": str(facts.get("native_nodes", 0)),
            "precision": str(facts["precision"]["effective"]) if facts else "",
        }

    def load(self, loader: Loader) -> None:
        """Load and warm up the model; a failure becomes the state, its cause is logged."""
        started = time.monotonic()
        try:
            executable = loader(self._config)
            self._open(executable)
        except (EngineError, PartitionError, ServingError) as error:
            self._fail(str(error))
            return
        except Exception as error:
            logger.exception("Model %r failed to load", self.name)
            self._fail(f"unexpected {type(error).__name__}: {error}")
            return
        self.state = State.READY
        spent = time.monotonic() - started
        logger.info("Loaded model %r version %s in %.1f s: %s", self.name, self.version, spent, _summary(self._facts))

    def enter(self, user: object) -> bool:
        """Keep the model from being freed until ``leave``; return False if it is retired already.

        A user enters before it looks whether the model is retired, and ``retire`` marks the model before it looks for
        users. So one of them sees the other, and no request needs a lock: adding to a set is atomic.
        """
        self._users.add(user)
        if not self._retired:
            return True
        self.leave(user)
        return False

    def leave(self, user: object) -> None:
        """Say that a user is done with the model."""
        self._users.discard(user)
        if self._retired and not self._users:
            self._unused.set()

    def retire(self) -> None:
        """Let no further user in, wait until the last one has left, and free the model."""
        self.state, self._retired = State.UNLOADING, True
        if self._users:
            self._unused.wait()
        executable, self._executable, self._run, self._batcher = self._executable, None, None, None
        self._files = None
        if executable is not None:
            executable.close()
        self.state, self.reason = State.UNAVAILABLE, "unloaded"

    def decode_images(self, feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the arrays of a request with its encoded images decoded.

        Raises:
            InvalidRequestError: An image is damaged, too large, or of another size than others.
        """
        if not self._images:
            return feeds
        inputs = self.signature.inputs
        decoded = {name: one.decode(inputs[name].label, feeds[name].tolist()) for name, one in self._images.items()}
        return {**feeds, **decoded}

    def infer(
        self,
        feeds: Mapping[str, np.ndarray],
        tensors: Sequence[WireTensor],
        durations: Durations,
        terms: QueueTerms,
    ) -> list[np.ndarray]:
        """Run the model when an instance is free, and return the arrays of ``tensors``.

        Args:
            feeds: Arrays that fit the signature.
            tensors: Outputs of the signature.
            durations: Gets the time in the queue and of the run.
            terms: What the request asks of the queue; without batching there is none to ask.

        Raises:
            InvalidRequestError: The model's own check refuses an input, or there are more rows than a batch may have.
            UnavailableError: The queue is full, or the request waited too long.
            CancelledRequestError: The client left while the request waited.
            ExecutionError: The run failed.
        """
        if self.stand_in:
            self.counts.add_fallback("building")
        names = None if tensors is self._everything else [tensor.name for tensor in tensors]
        try:
            if self._batcher is not None:
                results = self._batcher.infer(feeds, names, terms, durations)
            else:
                results = self._run_alone(feeds, names, durations, terms)
        except InvalidInputError as error:
            raise InvalidRequestError(f"model {self.name!r}: {error}") from error
        return [results[tensor.name] for tensor in tensors]

    def _run_alone(
        self, feeds: Mapping[str, np.ndarray], names: Sequence[str] | None, durations: Durations, terms: QueueTerms
    ) -> Mapping[str, np.ndarray]:
        assert self._run is not None, "only users that have entered run the model"
        arrived = time.perf_counter_ns()
        waits = False
        try:
            self._instances.get_nowait()
        except queue.Empty:
            waits = True
            self.counts.enter_queue()
            self._wait_for_instance(terms)
        started = time.perf_counter_ns()
        execution = durations.execution = Execution() if durations.traced else None
        try:
            if waits and not terms.on_cancel(_nothing):
                self._leave_queue()
            self.counts.begin_execution(leaving=int(waits))
            results = self._run(feeds, names, execution.stages if execution else None)
        finally:
            self._instances.put(None)
        ended = time.perf_counter_ns()
        durations.alone = True
        durations.queue = started - arrived
        durations.compute_infer = ended - started
        if execution is not None:
            execution.ended_ns = ended
        return results

    def _wait_for_instance(self, terms: QueueTerms) -> None:
        """Wait for an instance. Where that takes long, the thread makes room for requests to other models."""
        if not self._patient:
            with contextlib.suppress(queue.Empty):
                self._instances.get(timeout=PATIENCE_S)
                return
        turn = object()
        self._patient.add(turn)
        with terms.waiting:
            self._instances.get()
        self._patient.discard(turn)

    def _leave_queue(self) -> NoReturn:
        self.counts.leave_queue()
        self.counts.add_rejection(RejectionReason.CANCELLED)
        raise CancelledRequestError

    def _open(self, executable: Executable) -> None:
        try:
            signature = Signature.of(self.name, executable.inputs, executable.outputs)
            self._run = run = placed(executable.run)
            self._batcher = self._open_batcher(executable, signature, run)
            warm_up(executable, signature, self._config, self.batching)
        except BaseException:
            self._run = self._batcher = None
            executable.close()
            raise
        self.counts.describe(executable.description)
        executable.on_fallback = self.counts.add_fallback
        executable.on_loss = self._lose
        if len(signature.outputs) == len(executable.outputs):
            self._everything = signature.outputs
        self._images = image_decoders(self._config, executable.inputs[0].name) if executable.inputs else {}
        self._executable, self._facts = executable, executable.description
        self._signature = signature.taking_images(self._images)

    def _open_batcher(self, executable: Executable, signature: Signature, run: Run) -> DynamicBatcher | None:
        config = self._config.batching
        if config is None:
            return None
        problem = no_batch_axis(signature) or _dependent_rows(executable, signature)
        if problem:
            logger.warning("Model %r: requests run one by one, without batching: %s", self.name, problem)
            return None
        return DynamicBatcher(run, signature.required, config, self._config.instances, self.counts)

    def _lose(self, reason: str) -> None:
        """Be not ready any more, so that the process is restarted; what still comes is answered natively."""
        if self.state is State.READY:
            self.state, self.reason = State.UNAVAILABLE, reason
            logger.error("Model %r is not ready any more: %s", self.name, reason)
            self._on_loss()

    def _fail(self, reason: str) -> None:
        self.state, self.reason = State.UNAVAILABLE, reason
        log = logger.error if self.required else logger.warning
        log("Model %r did not load: %s", self.name, reason)


def _nothing() -> None:
    """Nothing is left to do for a client that leaves while its request runs."""


def _summary(facts: Mapping[str, Any]) -> str:
    return (
        f"engine {facts['engine']}, {facts['segments']} segments, {facts['native_nodes']} native nodes, "
        f"precision {facts['precision']['effective']}"
    )


def _dependent_rows(executable: Executable, signature: Signature) -> str | None:
    """Return why rows of different requests must not stand in one batch, though the signature would allow it."""
    try:
        if rows_differ_in_company(executable, signature):
            return "a row's results change when other rows stand beside it, so axis 0 is no batch axis"
    except EngineError as error:
        logger.warning("Whether axis 0 of model %r is a batch axis could not be checked: %s", signature.model, error)
    return None
