"""The inference service: the answers of every port about the server and its models. It knows no transport."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from trtnode.engines.artifact.cache import builder_version
from trtnode.serving.errors import (
    BusyError,
    InvalidRequestError,
    MissingExtraError,
    NotFoundError,
    SequencesFullError,
    UnavailableError,
)
from trtnode.serving.models.repository import ModelRepository
from trtnode.serving.models.servable import Servable
from trtnode.serving.models.served_model import ServedModel
from trtnode.serving.protocol.request_cache import RequestCache
from trtnode.serving.protocol.shared_memory import RegionTable
from trtnode.serving.schema.server import ServerConfig, TracingConfig
from trtnode.serving.sequences.table import SequenceTable
from trtnode.serving.service.inference import Inference
from trtnode.serving.service.status import failure_reason
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.telemetry.request_stats import FailureReason, ModelCounts, RejectionReason
from trtnode.serving.threads.request_pool import RequestPool

if TYPE_CHECKING:
    from trtnode.serving.telemetry.tracing import Tracing

STOPPING = "the server is stopping"
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "sequence",
    "statistics",
)
"""Parts of the protocol beyond its base that this server always has."""
OPTIONAL_EXTENSIONS: Mapping[str, str] = {"shared_memory": "system_shared_memory", "settings": "logging"}
"""Those that a key of ``server.admin`` turns on."""


class InferenceService:
    """Answers about the server and its models, and runs them. Thread-safe."""

    def __init__(
        self,
        repository: ModelRepository,
        metrics: Metrics,
        config: ServerConfig,
        pool: RequestPool,
    ) -> None:
        """Prepare.

        Args:
            repository: The models.
            metrics: Counts requests for models that aren't served.
            config: Of the server.
            pool: The threads for requests that take longer than a moment.

        Raises:
            MissingExtraError: Tracing is configured and OpenTelemetry isn't installed.
        """
        self.started_s = time.perf_counter()
        """The time at which the service was made, by ``time.perf_counter``."""
        self.stopping = False
        """Set once, when the server begins to stop."""
        self.not_ready_reasons: Sequence[str] = ()
        """Reasons for which a server of several processes isn't ready; requests to these models are answered all the
        same."""
        self.name = config.name
        """Its name in its metadata."""
        self.version = builder_version()
        self.tracing = _open_tracing(config.tracing, self.version) if config.tracing else None
        """Makes the spans of requests; None where nothing is traced."""
        self.extensions = (
            *EXTENSIONS,
            *(name for key, name in OPTIONAL_EXTENSIONS.items() if getattr(config.admin, key)),
            *(("trace",) if config.tracing and config.admin.settings else ()),
        )
        """Parts of the protocol beyond its base that this server has."""
        self.shared_memory = RegionTable(
            allowed=config.admin.shared_memory, max_bytes=config.limits.shared_memory_mb << 20
        )
        self.repository = repository
        """The models."""
        self._metrics = metrics
        self._pool = pool

    def close(self) -> None:
        """Send the last spans, where requests are traced."""
        if self.tracing is not None:
            self.tracing.close()

    def ready(self) -> bool:
        """Return whether every required model can answer and nothing else keeps the server from being ready."""
        return not self.stopping and not self.not_ready_reasons and self.repository.ready()

    def not_ready(self) -> list[str]:
        """Return what the server waits for, one line a reason."""
        own = [*([STOPPING] if self.stopping else []), *self.models_not_ready()]
        return list(self.not_ready_reasons) or own

    def models_not_ready(self) -> list[str]:
        """Return which required models can't answer, one line a model."""
        models = [model for model in self.repository.models() if model.required and not model.ready]
        return [f"model {model.config.name!r} is {_state_of(model)}" for model in models]

    def models_building(self) -> list[str]:
        """Return which models answer natively until their engines are built, one line a model."""
        return [
            f"model {one.name!r} version {one.version} answers natively: its engines are being built"
            for one in self.repository.known()
            if one.is_ready and one.counts.builds
        ]

    def model_ready(self, name: str, version: str) -> bool:
        """Return whether a model can answer; an unknown one can't, which is no error.

        Raises:
            InvalidRequestError: The version isn't a number.
        """
        try:
            return self.repository.find(name, version).is_ready
        except NotFoundError:
            return False

    @property
    def unknown_requests(self) -> int:
        """The number of requests for models that aren't served."""
        return sum(self._metrics.unknown_model.snapshot().failures.values())

    def find(self, name: str, version: str) -> Servable:
        """Return a model version.

        Raises:
            InvalidRequestError: The version isn't a number.
            NotFoundError: There is no such model, or no such version of it.
        """
        return self.repository.find(name, version)

    def models(self) -> Iterable[ServedModel]:
        """All models, whatever their state."""
        return self.repository.models()

    def counts_of(self, name: str, version: str) -> list[ModelCounts]:
        """Return what happened to model versions, also to retired ones; an empty name or version stands for all.

        Raises:
            InvalidRequestError: There is no such model or version.
        """
        if not name:
            return [counts for model in self.repository.models() for counts in model.counts()]
        try:
            known = self.repository.model(name).counts()
            asked = [one for one in known if one.labels["version"] == version.lstrip("0")] if version else known
            return asked or [self.repository.find(name, version).counts]
        except NotFoundError as error:
            raise InvalidRequestError(str(error)) from error  # the code that clients know from Triton

    def accept(self, inference: Inference) -> None:
        """Have an inference request answered: in this thread if that takes a moment, else in one of the pool.

        It counts how the request ends. An error is one of these: InvalidRequestError if the request is at fault;
        NotFoundError if there is no such model, version, or region of shared memory; UnavailableError if the server has
        no room for it, the model isn't ready, its queue is full, or the request waited too long; CancelledRequestError
        if its client left while it waited; ExecutionError if the run failed.
        """
        try:
            if not self._pool.admits():
                raise self._refusal(inference.model_name)
            sequences = self.repository.sequences(inference.model_name)
            if sequences is not None:
                step = functools.partial(self._accept_step, sequences, inference)
                step() if inference.is_parsed else self._pool.run(step)
                return
            servable, cache = self._enter(inference)
        except Exception as error:
            inference.refuse(error)
        else:
            inference.start(servable, cache, self._pool, self.shared_memory, self.tracing)

    def _accept_step(self, sequences: SequenceTable, inference: Inference) -> None:
        """Have a request of a sequence answered, by the version that its sequence keeps."""
        name, version = inference.model_name, inference.model_version
        try:
            mark = inference.sequence_mark(lambda: self._find(name, "")[1].signature)
            if not mark.identity:
                raise InvalidRequestError(
                    f"model {name!r} keeps state: send the parameter sequence_id, a number above 0 or a text, with "
                    "each request, and sequence_start with the first one"
                )
            owner = (inference.call.grant.digest, version)
            turn = sequences.take(mark, owner, lambda: self._find(name, version)[0], self._pool)
        except Exception as error:
            if isinstance(error, InvalidRequestError | SequencesFullError):
                self._counts_of(name).add_failure(failure_reason(error), detail=str(error))
            inference.refuse(error)
        else:
            servable = cast(Servable, turn.sequence.holder)
            inference.start(servable, servable.cache, self._pool, self.shared_memory, self.tracing, turn)

    def _enter(self, inference: Inference) -> tuple[Servable, RequestCache]:
        """Return the model of a request, which isn't freed until the request leaves it."""
        while True:
            servable, cache = self._find(inference.model_name, inference.model_version)
            if servable.enter(inference):  # else another has just taken its place, and is found next
                return servable, cache

    def _find(self, name: str, version: str) -> tuple[Servable, RequestCache]:
        """Return a model that is ready; a request that finds none is counted."""
        try:
            servable = self.repository.find(name, version)
        except (InvalidRequestError, NotFoundError) as error:
            self._counts_of(name).add_failure(FailureReason.OTHER, detail=str(error))
            raise
        try:
            return servable, servable.cache
        except UnavailableError as error:
            servable.counts.add_failure(FailureReason.REJECTED, detail=str(error))
            servable.counts.add_rejection(RejectionReason.NOT_READY)
            raise

    def _refusal(self, name: str) -> UnavailableError:
        """Count a request that the server has no room or no time left for, and return its error."""
        counts = self._counts_of(name)
        error = (
            UnavailableError(f"{STOPPING}; send the request to another one")
            if self._pool.draining
            else BusyError("the server has as many requests as it may (server.limits.max_requests); try later")
        )
        counts.add_failure(FailureReason.REJECTED, detail=str(error))
        counts.add_rejection(RejectionReason.DRAINING if self._pool.draining else RejectionReason.MAX_REQUESTS)
        return error

    def _counts_of(self, name: str) -> ModelCounts:
        try:
            return self.repository.find(name, "").counts
        except NotFoundError:
            return self._metrics.unknown_model


def _state_of(model: ServedModel) -> str:
    return model.preferred.state.lower() if model.preferred is not None else "unloaded"


def _open_tracing(config: TracingConfig, version: str) -> Tracing:
    try:
        from trtnode.serving.telemetry.tracing import Tracing
    except ImportError as error:
        raise MissingExtraError("server.tracing", "OpenTelemetry", "tracing") from error
    return Tracing(config.otlp_endpoint, version)
