"""One model version: its state, its loading, and its runs."""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtnode.engines.backends.names import NATIVE
from trtnode.engines.errors import BackendMissingError
from trtnode.engines.model_facts import UNCOMPILED, ModelFacts
from trtnode.engines.process_memory import resident_bytes
from trtnode.engines.system_limits import as_limit
from trtnode.partitioner.errors import ProjectError
from trtnode.partitioner.wording import counted
from trtnode.serving.errors import IncompleteFilesError, UnavailableError
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.models.loaded_model import LoadedModel, ModelOpener, answering_variant
from trtnode.serving.protocol.request_cache import RequestCache
from trtnode.serving.protocol.wire_signature import MESSAGE_BYTES, WireSignature, WireTensor
from trtnode.serving.schema.model import OPTIONS, BatchingConfig, ModelConfig
from trtnode.serving.telemetry.request_stats import ModelCounts
from trtnode.serving.text.sentence_folder import as_folder_says
from trtnode.serving.threads.inline_policy import InlinePolicy
from trtnode.serving.triton.conversion import accelerator_of, triton_config
from trtnode.serving.triton.keys import ENSEMBLE

logger = logging.getLogger(__name__)

Loader = Callable[[ModelConfig], ServedExecutable]
"""Makes a model ready to run; its errors say what the user can do."""


@dataclasses.dataclass(frozen=True, slots=True)
class CheckingLoader:
    """A loader that can also look at a file before anything is built of it.

    Attributes:
        load: Loads.
        problem: Returns what is wrong with the file of a model; empty if nothing is known to be.
    """

    load: Loader
    problem: Callable[[ModelConfig], str]

    def __call__(self, config: ModelConfig) -> ServedExecutable:
        """Load a model."""
        return self.load(config)


OR_NO_ACCELERATOR = (
    "Or take optimization.execution_accelerators out of its config.pbtxt: engines of this machine are used then."
)


class State(enum.StrEnum):
    """The state of a servable, in the protocol's words."""

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
        inline: Tells which requests run in the caller's thread.
        interim: Whether it answers natively only until its engines are built.
        is_incomplete: Whether it didn't load because its files are just being replaced.
        facts: Facts of the model; None until it is loaded.
    """

    def __init__(
        self,
        config: ModelConfig,
        counts: ModelCounts,
        version: str,
        *,
        on_loss: Callable[[], None],
        message_bytes: int = MESSAGE_BYTES,
        interim: bool = False,
        files: object = None,
    ) -> None:
        """Describe what to load.

        Args:
            config: How to serve it; the path is that of its file.
            counts: Where to count requests.
            version: Decimal.
            on_loss: Called when it is not ready any more since its engines can't run.
            message_bytes: The most bytes of a message.
            interim: Whether it runs natively, whatever the configuration says.
            files: Kept until the model is freed.
        """
        self.name = config.name
        self.version = version
        self.required = config.required
        self.state = State.LOADING
        self.reason = ""
        self.counts = counts
        self.inline = InlinePolicy()
        self.interim = interim
        self.is_incomplete = False
        self._config = config
        if interim:
            options = dataclasses.replace(config.options, engine=NATIVE)
            self._config = config.model_copy(update={OPTIONS: options, "variants": config.best_variant()})
        self._on_loss = on_loss
        self._opener = ModelOpener(
            config=self._config,
            counts=counts,
            version=version,
            message_bytes=message_bytes,
            interim=interim,
            on_loss=self._lose,
        )
        self._files = files
        self._users: set[object] = set()
        self._retired = False
        self._unused = threading.Event()
        self.facts: ModelFacts | None = None
        self._loaded: LoadedModel | None = None

    @property
    def is_ready(self) -> bool:
        """True if requests may come."""
        return self.state is State.READY

    @property
    def cache(self) -> RequestCache:
        """Reads its requests and writes its responses.

        Raises:
            UnavailableError: The model isn't ready.
        """
        return self.loaded.cache

    @property
    def loaded(self) -> LoadedModel:
        """The model that answers its requests; one that has entered finds it until it leaves.

        Raises:
            UnavailableError: The model isn't ready.
        """
        if self._loaded is None:
            raise UnavailableError(f"model {self.name!r} is not ready ({self.state})")
        return self._loaded

    @property
    def signature(self) -> WireSignature:
        """Inputs and outputs.

        Raises:
            UnavailableError: The model isn't ready.
        """
        return self.cache.signature

    def required_inputs(self) -> list[WireTensor]:
        """Return the inputs that metadata lists: those without a default, and those that the configuration names.

        Raises:
            UnavailableError: The model isn't ready.
        """
        named = self._config.interface.inputs if self._config.interface is not None else {}
        signature = self.signature
        return [one for one in signature.inputs.values() if one.name in signature.required or one.name in named]

    @property
    def platform(self) -> str:
        """The engine of the model, in the form of Triton's platform names; that of an ensemble is ``ensemble``."""
        if self._config.ensemble:
            return ENSEMBLE
        return "onnxruntime_onnx" if self.engine == NATIVE else f"{self.engine}_onnx"

    @property
    def engine(self) -> str:
        """The library of its engines."""
        return self.facts.engine if self.facts else NATIVE

    @property
    def instances(self) -> int:
        """The number of requests, or batches, that run at the same time."""
        return self._config.instances

    @property
    def batching(self) -> BatchingConfig | None:
        """The configuration of batching; None if they run one by one."""
        return self._loaded.batching if self._loaded else None

    @property
    def config(self) -> ModelConfig:
        """Its configuration; the path is that of its file, of several variants that of the one that was chosen."""
        return self._loaded.config if self._loaded else self._config

    def variants(self) -> Sequence[Mapping[str, Any]]:
        """Return the variants of the model with their figures, the best quality first; none where it has none."""
        return self.facts.variants if self.facts else ()

    @property
    def variant(self) -> str:
        """The name of the variant that answers; empty for a model without variants."""
        return answering_variant(self.facts)

    def trace_facts(self) -> dict[str, str]:
        """Return the attributes of the spans of its requests."""
        named = {"trtnode.variant": self.variant} if self.variant else {}
        return {"trtnode.model": self.name, "trtnode.version": self.version, **named}

    def parameters(self) -> dict[str, str]:
        """Return facts of the loaded model for its configuration on the wire."""
        facts, variants = self.facts or UNCOMPILED, self.variants()
        return {
            **({"variants": json.dumps(variants)} if variants else {}),
            "engine": facts.engine,
            "segments": str(facts.segments),
            "native_nodes": str(facts.native_nodes),
            "precision": facts.precision if self.facts else "",
        }

    def load(self, loader: Loader) -> None:
        """Load and warm up the model; a failure becomes the state, its cause is logged."""
        started = time.monotonic()
        try:
            before = _resident_bytes()
            self._read_folder()
            executable = loader(self._config)
            self._loaded = self._opener.open(executable)
            self.facts = executable.facts
            self.counts.describe(executable.facts, max(0, _resident_bytes() - before))
        except ProjectError as error:
            self.is_incomplete = isinstance(error, IncompleteFilesError)
            names_engine = isinstance(error, BackendMissingError) and accelerator_of(triton_config(self._config))
            self.fail(f"{error} {OR_NO_ACCELERATOR}" if names_engine else str(error))
            return
        except Exception as error:
            if (limit := as_limit(error)) is not None:
                self.fail(str(limit))
                return
            logger.exception("Model %r failed to load", self.name)
            self.fail(f"unexpected {type(error).__name__}: {error}")
            return
        self.state = State.READY
        spent = time.monotonic() - started
        logger.info("Loaded model %r version %s in %.1f s: %s", self.name, self.version, spent, _summary(self.facts))

    def _read_folder(self) -> None:
        """Take what the folder of a model of text says into the configuration, and log it."""
        config, lines = as_folder_says(self._config)
        if lines:
            self._config, self._opener = config, dataclasses.replace(self._opener, config=config)
        for line in () if self.interim else lines:
            logger.info("Model %r: %s", self.name, line)

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
        """Note that a user is done with the model."""
        self._users.discard(user)
        if self._retired and not self._users:
            self._unused.set()

    def retire(self) -> None:
        """Let no further user in, wait until the last one has left, and free the model."""
        self.state, self._retired = State.UNLOADING, True
        if self._users:
            self._unused.wait()
        loaded, self._loaded, self._files = self._loaded, None, None
        if loaded is not None:
            loaded.executable.close()
        self.state, self.reason = State.UNAVAILABLE, "unloaded"

    def runs_inline(self, size: int) -> bool:
        """Return whether a request of so many bytes would wait for nothing and take a moment."""
        return self.inline.covers(size) and self._loaded is not None and self._loaded.runner.has_room

    def _lose(self, reason: str) -> None:
        """Be not ready any more, so that the process is restarted; what still comes is answered natively."""
        if self.state is State.READY:
            self.state, self.reason = State.UNAVAILABLE, reason
            logger.error("Model %r is not ready any more: %s", self.name, reason)
            self._on_loss()

    def fail(self, reason: str) -> None:
        """Note and log why the model isn't loaded."""
        self.state, self.reason = State.UNAVAILABLE, reason
        log = logger.error if self.required else logger.warning
        log("Model %r did not load: %s", self.name, reason)


def _resident_bytes() -> int:
    """Return the memory of this process; 0 where the system doesn't tell."""
    try:
        return resident_bytes()
    except OSError:
        return 0


def _summary(facts: ModelFacts) -> str:
    unchecked = f" ({facts.unchecked} unchecked)" if facts.unchecked else ""
    segments, nodes = counted(facts.segments, "segment"), counted(facts.native_nodes, "native node")
    referred = f" ({len(facts.reference_nodes)} in onnx.reference)" if facts.reference_nodes else ""
    return f"engine {facts.engine}, {segments}{unchecked}, {nodes}{referred}, precision {facts.precision}"
