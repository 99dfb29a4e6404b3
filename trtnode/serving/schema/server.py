"""The tree of servable.yaml."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal, Protocol

import pydantic
from pydantic import Field

from trtnode.engines.backends.names import LibraryName
from trtnode.serving.schema.fields import (
    LONGEST_S,
    ConfigPath,
    Cores,
    Count,
    ListOf,
    Mebibytes,
    Seconds,
    Section,
)
from trtnode.serving.schema.model import ModelConfig

Port = Annotated[int, Field(ge=0, le=65535)]


class TlsConfig(Section):
    """Certificates of a port."""

    cert: ConfigPath
    """Certificate chain (PEM); like the other two, followed while the server runs."""
    key: ConfigPath
    """Private key (PEM)."""
    client_ca: ConfigPath | None = None
    """Clients must show a certificate that this authority signed (PEM)."""


class GrpcConfig(Section):
    """The gRPC port."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on; 0.0.0.0 for all."""
    port: Port = 8001
    """Port to listen on; 0 for any free one."""
    max_message_mb: int = Field(default=64, ge=1, le=2047)
    """Largest request of either port, and largest response of this one, in MiB."""
    workers: Cores = 1
    """Processes that share both ports; each connection stays with one of them. Limits hold in each."""
    cores: Cores | None = None
    """Cores that the threads of both ports keep to, except for runs of over 0.1 ms. By default one where there are two,
    and all where there are more."""
    tls: TlsConfig | None = None
    """Certificates; null serves in the clear."""


class HttpConfig(Section):
    """The HTTP port: KServe V2 as REST, /metrics, /livez, /readyz and the status page."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on; 0.0.0.0 for all."""
    port: Port = 8002
    """Port to listen on; 0 for any free one."""
    allowed_hosts: ListOf[str] = ()
    """Names that requests may call the server by, beside addresses and localhost; none allows any, but on a loopback
    address only those."""
    allowed_origins: ListOf[str] = ()
    """Pages that may send more than GET, such as https://tools.example.com, beside those of this server."""
    tls: TlsConfig | None = None
    """Certificates, also for probes and scrapers; null serves in the clear."""


class AuthConfig(Section):
    """The callers."""

    tokens_file: ConfigPath
    """Bearer tokens and what each may do (YAML); followed while the server runs."""


class AdminConfig(Section):
    """RPCs that change the server."""

    repository: bool = False
    """Allow loading and unloading models."""
    shared_memory: bool = False
    """Allow tensors in shared memory of this machine. A region belongs to the token that registered it."""
    settings: bool = False
    """Allow changes of the log level and of what is traced."""


class LimitsConfig(Section):
    """Bounds on what clients can use up."""

    max_requests: Count = 1024
    """Inference requests in the server at a time; further ones are refused."""
    connection_requests: Count = 256
    """Calls of one connection at a time, streams included; further ones wait in the client."""
    streams: Count = 64
    """Inference streams (ModelStreamInfer) that are open at a time; further ones are refused."""
    stream_buffer_mb: Mebibytes = 64
    """Response backlog of gRPC: responses that clients haven't read, in MiB over all of them. Beyond it, calls whose
    clients stopped reading are cancelled; so is, within it, a call whose client reads nothing for a minute."""
    shared_memory_mb: Mebibytes = 1024
    """Shared memory that clients may register, in MiB; so much may also be in copies of inputs from there."""
    http_connections: Count = 512
    """HTTP connections that are open at a time; a further one closes the one that lets the server wait longest. Half of
    the process's file descriptors at most."""
    http_header_bytes: int = Field(default=32 << 10, ge=1 << 10, le=1 << 20)
    """Largest header of an HTTP request, in bytes; it has 100 fields at most."""
    http_header_timeout_s: Seconds = 10
    """Longest time for a whole header of an HTTP request, in seconds."""
    load_memory_mb: Mebibytes | None = None
    """Memory of each process that reads, checks and builds a new model, in MiB; null for half of the machine's."""
    load_timeout_s: Seconds = 1800
    """Time that loading one new model may take, engines included, in seconds."""
    model_memory_mb: Mebibytes | None = None
    """Memory of all tensors that ONNX Runtime computes in a process, in MiB; null for half of the machine's. Also that
    of one result in an engine, and of each process for onnx.reference or long texts."""
    reference_timeout_s: Seconds = 60
    """Time that one node of a model with `reference: true` may take in onnx.reference, in seconds; also that of one
    request in a process for long texts."""


class LogConfig(Section):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written."""
    format: Literal["text", "json"] = "text"
    """Form of a line; json is one object a line."""


class TracingConfig(Section):
    """The collector of spans."""

    otlp_endpoint: str
    """URL of an OpenTelemetry collector (OTLP over gRPC); https for an encrypted connection."""


class ServerConfig(Section):
    """The process and its ports."""

    name: Annotated[str, Field(min_length=1, max_length=255)] = "trtnode"
    """The name of the server in its metadata; `triton` for clients that ask for that."""
    grpc: GrpcConfig = GrpcConfig()
    """The gRPC port."""
    http: HttpConfig = HttpConfig()
    """The HTTP port."""
    auth: AuthConfig | None = None
    """The callers; null for everyone who reaches the port."""
    admin: AdminConfig = AdminConfig()
    """RPCs that change the server."""
    limits: LimitsConfig = LimitsConfig()
    """Bounds on what clients can use up."""
    startup: Literal["wait", "native"] | None = None
    """The start: wait, the default, is ready when engines are built; native at once, without engines until they are."""
    shutdown_grace_s: float = Field(default=30, ge=0, le=LONGEST_S, allow_inf_nan=False)
    """The time that requests may still run after SIGTERM, in seconds."""
    shutdown_delay_s: float = Field(default=0, ge=0, le=LONGEST_S, allow_inf_nan=False)
    """The time before that in which requests are answered as ever, and probes and health checks say not ready, in
    seconds: balancers and clients then go elsewhere before connections are told to."""
    log: LogConfig = LogConfig()
    """The log on stderr."""
    tracing: TracingConfig | None = None
    """The collector of spans; null for none."""
    custom_op_libraries: ListOf[ConfigPath] = ()
    """Libraries of custom operators that all models may use, beside those of a model's own key."""
    custom_op_folders: ListOf[ConfigPath] = ()
    """Folders below which each `config.pbtxt` of a Triton repository may name libraries; none lets it name none."""


class CacheConfig(Section):
    """Built engines, and copies of model files, on disk."""

    dir: ConfigPath | None = None
    """Their folder; null for $XDG_CACHE_HOME/trtnode, or ~/.cache/trtnode."""
    max_gb: float = Field(default=20, gt=0, le=1e6, allow_inf_nan=False)
    """Size at which the least recently used ones are deleted, in GB; copies take what engines leave of it."""


class TrustConfig(Section):
    """The keys of engines that may run."""

    keys: ListOf[ConfigPath] = ()
    """Files of public keys (PEM); engines that one of them signed may run, and those that were built here."""
    allow_unsigned: ListOf[LibraryName] | None = None
    """The backends whose engines run without a signature as well; null for openvino, or for none if there are keys."""


class ModelSource(Protocol):
    """A place that describes models in files of its own. They are read anew when a model is to be loaded."""

    def names(self) -> list[str]:
        """Return the models that are there now."""

    def read(self, wanted: Collection[str] | None, server: ServerConfig) -> Sequence[ModelConfig]:
        """Return models as they are described now, with those that ensembles among them run.

        Args:
            wanted: Their names; None for all.
            server: The server that they are for.

        Raises:
            ConfigError: A file can't be used. It has the faults of all files.
        """


class ServableConfig(Section):
    """Configuration of `trtnode serve`."""

    server: ServerConfig = ServerConfig()
    """The process and its ports."""
    cache: CacheConfig = CacheConfig()
    """Built engines on disk."""
    trust: TrustConfig = TrustConfig()
    """The keys of engines that may run."""
    models: ListOf[ModelConfig] = Field(json_schema_extra={"minItems": 1})
    """The models to serve."""

    _source: ModelSource | None = pydantic.PrivateAttr(None)

    def with_models(self, models: Sequence[ModelConfig], source: ModelSource) -> ServableConfig:
        """Return a configuration that serves models of a source, and loads further ones from there."""
        config = self.model_copy(update={"models": tuple(models)})
        config._source = source
        return config

    @property
    def source(self) -> ModelSource | None:
        """The place that models are read anew from; None where their section says all."""
        return self._source

    @pydantic.field_validator("models")
    @classmethod
    def _join_ensembles(cls, models: tuple[ModelConfig, ...]) -> tuple[ModelConfig, ...]:
        """Let each ensemble know its models, but none that contains an ensemble that contains itself."""
        waiting = {model.name: model for model in models if model.ensemble}
        found = {model.name: model for model in models if not model.ensemble}
        while ready := [one for one in waiting.values() if not any(step.model in waiting for step in one.ensemble)]:
            found |= {one.name: waiting.pop(one.name).with_members(found) for one in ready}
        found |= {name: one.with_members(found) for name, one in waiting.items()}
        return tuple(found[model.name] if model.ensemble else model for model in models)
