"""One loaded model version, its state, and requests to it."""

import enum
import logging
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engines import EngineError, Executable, InvalidInputError
from partitioner import PartitionError
from serving.batch_axis import no_batch_axis, rows_differ_in_company
from serving.batcher import DynamicBatcher
from serving.errors import InvalidRequestError, ServingError, UnavailableError
from serving.metrics import Durations, ModelCounts
from serving.model_schema import BatchingConfig, ModelConfig
from serving.queue_terms import QueueTerms
from serving.signature import BYTES, Signature, WireTensor

logger = logging.getLogger(__name__)

Loader = Callable[[ModelConfig], Executable]
"""Makes a model ready to run; its errors say what the user can do."""

ONLY_VERSION = "1"
"""What a model that is a single file is called."""


class State(enum.StrEnum):
    """What a servable can do, in the protocol's words."""

    LOADING = "LOADING"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"


class Servable:
    """A model version. Thread-safe.

    Attributes:
        name: The model's name.
        version: Decimal.
        required: Whether the server needs it.
        state: What it can do now.
        reason: Why it is unavailable.
        counts: What happened to it.
    """

    def __init__(self, config: ModelConfig, counts: ModelCounts) -> None:
        self.name = config.name
        self.version = ONLY_VERSION
        self.required = config.required
        self.state = State.LOADING
        self.reason = ""
        self.counts = counts
        self._config = config
        self._executable: Executable | None = None
        self._signature: Signature | None = None
        self._everything: Sequence[WireTensor] | None = None
        self._batcher: DynamicBatcher | None = None
        # One token an instance. A SimpleQueue costs a tenth of a semaphore, whose waiting is written in Python.
        self._instances: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(config.instances):
            self._instances.put(None)

    @property
    def signature(self) -> Signature:
        """Inputs and outputs.

        Raises:
            UnavailableError: The model isn't ready.
        """
        if self._signature is None or self.state is not State.READY:
            raise UnavailableError(f"model {self.name!r} is not ready ({self.state})")
        return self._signature

    @property
    def platform(self) -> str:
        """What runs the model, in the form of Triton's platform names."""
        engine = self._executable.description["engine"] if self._executable else "native"
        return "onnxruntime_onnx" if engine == "native" else f"{engine}_onnx"

    @property
    def instances(self) -> int:
        """How many requests, or batches, run at the same time."""
        return self._config.instances

    @property
    def batching(self) -> BatchingConfig | None:
        """How requests are joined; None if they run one by one."""
        return self._config.batching if self._batcher is not None else None

    def parameters(self) -> dict[str, str]:
        """What an engineer wants to know about the loaded model, for its configuration on the wire."""
        facts = self._executable.description if self._executable else {}
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
        self.state, self.counts.ready = State.READY, True
        logger.info(
            "Loaded model %r in %.1f s: %s", self.name, time.monotonic() - started, _summary(executable.description)
        )

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
        names = None if tensors is self._everything else [tensor.name for tensor in tensors]
        try:
            if self._batcher is not None:
                results = self._batcher.infer(feeds, names, terms, durations)
            else:
                results = self._run_alone(feeds, names, durations)
        except InvalidInputError as error:
            raise InvalidRequestError(f"model {self.name!r}: {error}") from error
        return [results[tensor.name] for tensor in tensors]

    def close(self) -> None:
        """Free the model. No request may be under way."""
        executable, self._executable = self._executable, None
        self.state, self.counts.ready = State.UNAVAILABLE, False
        if executable is not None:
            executable.close()

    def _run_alone(
        self, feeds: Mapping[str, np.ndarray], names: Sequence[str] | None, durations: Durations
    ) -> Mapping[str, np.ndarray]:
        executable = self._executable
        assert executable is not None, "the signature is only there after loading"
        arrived = time.perf_counter_ns()
        self.counts.enter_queue()
        self._instances.get()
        started = time.perf_counter_ns()
        self.counts.begin_execution()
        try:
            results = executable.run(feeds, names)
        finally:
            self._instances.put(None)
        durations.queue = started - arrived
        durations.compute_infer = time.perf_counter_ns() - started
        return results

    def _open(self, executable: Executable) -> None:
        try:
            signature = Signature.of(self.name, executable.inputs, executable.outputs)
            self.counts.describe(executable.description)
        except BaseException:
            executable.close()
            raise
        executable.on_fallback = self.counts.add_fallback
        self._batcher = self._open_batcher(executable, signature)
        self._warm_up(executable, signature)
        if len(signature.outputs) == len(executable.outputs):
            self._everything = signature.outputs
        self._executable, self._signature = executable, signature

    def _open_batcher(self, executable: Executable, signature: Signature) -> DynamicBatcher | None:
        config = self._config.batching
        if config is None:
            return None
        problem = no_batch_axis(signature) or _dependent_rows(executable, signature)
        if problem:
            logger.warning("Model %r: requests run one by one, without batching: %s", self.name, problem)
            return None
        return DynamicBatcher(executable.run, signature.required, config, self._config.instances, self.counts)

    def _warm_up(self, executable: Executable, signature: Signature) -> None:
        sizes = [1] * self._config.warmup
        if sizes and self.batching is not None:
            sizes += self.batching.warm_sizes()
        names = [tensor.name for tensor in signature.outputs]
        try:
            for size in sizes:
                feeds = {name: _zeros(signature.inputs[name], size) for name in signature.required}
                executable.run(feeds, names)
        except Exception as error:
            # Zeros, or sizes of 1, need not make sense to every model.
            logger.warning("Model %r: the warm-up run on zeros failed: %s", self.name, error)

    def _fail(self, reason: str) -> None:
        self.state, self.reason = State.UNAVAILABLE, reason
        log = logger.error if self.required else logger.warning
        log("Model %r did not load: %s", self.name, reason)


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


def _zeros(tensor: WireTensor, rows: int) -> np.ndarray:
    shape = [1 if size == -1 else size for size in tensor.shape or ()]
    if shape and rows > 1:
        shape[0] = rows
    if tensor.datatype is BYTES:
        return np.full(shape, "", object)
    return np.zeros(shape, tensor.datatype.numpy)
