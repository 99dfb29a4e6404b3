"""The inference service: what every front answers. It knows no gRPC."""

import dataclasses
import importlib.metadata
import time
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from serving.errors import (
    CancelledRequestError,
    InvalidRequestError,
    MissingExtraError,
    NotFoundError,
    SharedMemoryError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)
from serving.metrics import Durations, FailureReason, Metrics, ModelCounts, RejectionReason
from serving.queue_terms import QueueTerms
from serving.repository import ModelRepository
from serving.schema import ServerConfig, TracingConfig
from serving.servable import Servable
from serving.served_model import ServedModel
from serving.shared_memory import SharedMemory
from serving.signature import Signature, WireTensor

if TYPE_CHECKING:
    from serving.tracing import Headers, RequestTrace, Tracing

SERVER_NAME = "trtnode"
STOPPING = "the server is stopping"
EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "schedule_policy", "statistics")
"""Parts of the protocol beyond its base that this server always has."""
OPTIONAL_EXTENSIONS: Mapping[str, str] = {"shared_memory": "system_shared_memory", "settings": "logging"}
"""Those that a key of ``server.admin`` turns on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelDescription:
    """What clients learn about a model.

    Attributes:
        name: Its name.
        versions: Those that are loaded.
        platform: What runs it.
        inputs: Those that requests must carry; inputs with a default are accepted, but not listed.
        outputs: All.
    """

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[WireTensor, ...]
    outputs: tuple[WireTensor, ...]


class InferenceService:
    """Answers about the server and its models, and runs them. Thread-safe."""

    def __init__(self, repository: ModelRepository, metrics: Metrics, config: ServerConfig) -> None:
        """Prepare.

        Raises:
            MissingExtraError: Tracing is configured and OpenTelemetry isn't installed.
        """
        self.draining = False
        """Set once, when the server begins to stop."""
        self.obstacle = ""
        """Why the server isn't ready though its models may be; requests are answered all the same."""
        self.version = _installed_version()
        self.tracing = _open_tracing(config.tracing, self.version) if config.tracing else None
        """Makes the spans of requests; None where nothing is traced."""
        self.extensions = (
            *EXTENSIONS,
            *(name for key, name in OPTIONAL_EXTENSIONS.items() if getattr(config.admin, key)),
            *(("trace",) if config.tracing and config.admin.settings else ()),
        )
        """Parts of the protocol beyond its base that this server has."""
        self.shared_memory = SharedMemory(
            allowed=config.admin.shared_memory, max_bytes=config.limits.shared_memory_mb << 20
        )
        self._repository = repository
        self._metrics = metrics

    def close(self) -> None:
        """Send the last spans, where requests are traced."""
        if self.tracing is not None:
            self.tracing.close()

    def ready(self) -> bool:
        """Whether every required model can answer and nothing else keeps the server from being ready."""
        return not self.draining and not self.obstacle and self._repository.ready()

    def not_ready(self) -> list[str]:
        """Say what the server waits for, one line a reason."""
        reasons = [STOPPING] if self.draining else []
        return [*reasons, *filter(None, [self.obstacle]), *self.models_not_ready()]

    def models_not_ready(self) -> list[str]:
        """Say which required models can't answer, one line a model."""
        models = [model for model in self._repository.models() if model.config.required and not model.ready]
        return [f"model {model.config.name!r} is {_state_of(model)}" for model in models]

    def model_ready(self, name: str, version: str) -> bool:
        """Whether a model can answer; an unknown one can't, which is no error.

        Raises:
            InvalidRequestError: The version isn't a number.
        """
        try:
            return self._repository.find(name, version).is_ready
        except NotFoundError:
            return False

    def describe_model(self, name: str, version: str) -> ModelDescription:
        """Return what clients learn about a model.

        Raises:
            InvalidRequestError: The version isn't a number.
            NotFoundError: There is no such model, or no such version of it.
            UnavailableError: The model isn't ready.
        """
        servable = self._repository.find(name, version)
        signature = servable.signature
        inputs = tuple(tensor for tensor in signature.inputs.values() if tensor.name in signature.required)
        versions = tuple(one.version for one in self._repository.model(name).versions.values() if one.is_ready)
        return ModelDescription(name, versions, servable.platform, inputs, signature.outputs)

    def find(self, name: str, version: str) -> Servable:
        """Return a model version.

        Raises:
            InvalidRequestError: The version isn't a number.
            NotFoundError: There is no such model, or no such version of it.
        """
        return self._repository.find(name, version)

    def models(self) -> Iterable[ServedModel]:
        """All models, whatever their state."""
        return self._repository.models()

    def find_all(self, name: str, version: str) -> list[Servable]:
        """Return the model versions that statistics are asked for: all those that an empty name or version stands for.

        Raises:
            InvalidRequestError: There is no such model or version.
        """
        if not name:
            return [servable for model in self._repository.models() for servable in model.versions.values()]
        try:
            if version:
                return [self._repository.find(name, version)]
            return list(self._repository.model(name).versions.values())
        except NotFoundError as error:
            raise InvalidRequestError(str(error)) from error  # the code that clients know from Triton

    def index(self, *, ready: bool) -> list[Servable]:
        """Return every version that is or was loaded, or only those that are ready."""
        known = [servable for model in self._repository.models() for servable in model.known()]
        return [servable for servable in known if servable.is_ready or not ready]

    def load_model(self, name: str, settings: str | None, contents: Mapping[str, bytes]) -> None:
        """Load a model anew, see ``ModelRepository.load``."""
        self._repository.load(name, settings, contents)

    def unload_model(self, name: str) -> None:
        """Serve a model no longer, see ``ModelRepository.unload``."""
        self._repository.unload(name)

    def call(self, name: str, version: str, *, request_id: str = "", headers: "Headers" = tuple) -> "Call":
        """Open an inference request to a model; use it in a ``with`` statement, which counts how it ends.

        Args:
            name: The model's name.
            version: Decimal; empty for the preferred one.
            request_id: As the client chose it.
            headers: What came with the request; it may say to which trace the request belongs.

        Raises:
            InvalidRequestError: The version isn't a number.
            NotFoundError: There is no such model, or no such version of it.
            UnavailableError: The model isn't ready.
        """
        call = self._call(name, version)
        while not call.servable.enter(call):  # another has just taken its place, and is found now
            call = self._call(name, version)
        if self.tracing is not None:
            call.trace = self.tracing.begin(request_id, headers)
        return call

    def _call(self, name: str, version: str) -> "Call":
        try:
            servable = self._repository.find(name, version)
        except (InvalidRequestError, NotFoundError):
            self._counts_of(name).add_failure(FailureReason.OTHER)
            raise
        try:
            return Call(servable, servable.signature)
        except UnavailableError:
            servable.counts.add_failure(FailureReason.REJECTED)
            servable.counts.add_rejection(RejectionReason.NOT_READY)
            raise

    def refuse(self, name: str) -> UnavailableError:
        """Count a request that the server has no room or no time left for, and return its error."""
        counts = self._counts_of(name)
        counts.add_failure(FailureReason.REJECTED)
        counts.add_rejection(RejectionReason.DRAINING if self.draining else RejectionReason.MAX_REQUESTS)
        if self.draining:
            return UnavailableError("the server is stopping; send the request to another one")
        return UnavailableError("the server has as many requests as it may (server.limits.max_requests); try later")

    def _counts_of(self, name: str) -> ModelCounts:
        try:
            return self._repository.find(name, "").counts
        except NotFoundError:
            return self._metrics.unknown_model


class Call:
    """One inference request, from its arrival to its answer.

    Attributes:
        servable: The model.
        signature: Its inputs and outputs.
        trace: Its trace; None if it isn't traced.
    """

    __slots__ = ("_asked", "_durations", "_entered", "_ran", "servable", "signature", "trace")

    def __init__(self, servable: Servable, signature: Signature) -> None:
        self.servable = servable
        self.signature = signature
        self.trace: RequestTrace | None = None
        self._durations = Durations()
        self._entered = self._asked = self._ran = 0

    def __enter__(self) -> "Call":
        self._entered = time.perf_counter_ns()
        return self

    def infer(
        self, feeds: Mapping[str, np.ndarray], names: Sequence[str], terms: QueueTerms
    ) -> tuple[tuple[WireTensor, ...], list[np.ndarray]]:
        """Run the model on arrays that fit its signature.

        Returns:
            The outputs called ``names`` (all, if it is empty) and their arrays, both in the model's order.

        Raises:
            InvalidRequestError: A name is unknown or stands twice, an image can't be decoded, or the model refuses an
                input.
            UnavailableError: The queue is full, or the request waited too long.
            CancelledRequestError: The client left while the request waited.
            ExecutionError: The run failed.
        """
        outputs = self.signature.select(names)
        feeds = self.servable.decode_images(feeds)
        self._asked = time.perf_counter_ns()
        self._durations.compute_input = self._asked - self._entered
        self._durations.traced = self.trace is not None
        arrays = self.servable.infer(feeds, outputs, self._durations, terms)
        self._ran = time.perf_counter_ns()
        return outputs, arrays

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.servable.leave(self)
        now, durations = time.perf_counter_ns(), self._durations
        if error is None:
            durations.compute_output, durations.total = now - self._ran, now - self._entered
            self.servable.counts.add_success(durations)
        else:
            reason = next((why for kind, why in _REASONS if isinstance(error, kind)), FailureReason.BACKEND)
            self.servable.counts.add_failure(reason, now - self._entered)
        if self.trace is not None:
            self._end_trace(self.trace, now, error)

    def _end_trace(self, trace: "RequestTrace", now: int, error: BaseException | None) -> None:
        phases = [("read", self._entered, self._asked)] if self._asked else []
        if error is not None:
            trace.fail(error)
        elif self._ran:
            phases.append(("write", self._ran, now))
        trace.end(self.servable.name, self.servable.version, self._durations, phases)


_REASONS: tuple[tuple[type[Exception], FailureReason], ...] = (
    (InvalidRequestError, FailureReason.OTHER),
    (UnsupportedError, FailureReason.OTHER),
    (NotFoundError, FailureReason.OTHER),
    (SharedMemoryError, FailureReason.OTHER),
    (TooLargeError, FailureReason.OTHER),
    (UnavailableError, FailureReason.REJECTED),
    (CancelledRequestError, FailureReason.CANCELED),
)


def _state_of(model: ServedModel) -> str:
    return model.preferred.state.lower() if model.preferred is not None else "unloaded"


def _open_tracing(config: TracingConfig, version: str) -> "Tracing":
    try:
        from serving.tracing import Tracing
    except ImportError as error:
        raise MissingExtraError("server.tracing", "OpenTelemetry", "tracing") from error
    return Tracing(config.otlp_endpoint, version)


def _installed_version() -> str:
    try:
        return importlib.metadata.version("trtnode")
    except importlib.metadata.PackageNotFoundError:  # running from a checkout that isn't installed
        return "unknown"
