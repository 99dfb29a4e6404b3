"""One model version: its state, its loading, and its runs."""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from trtnode.engines.backends.names import NATIVE
from trtnode.engines.errors import EngineError
from trtnode.engines.process_memory import resident_bytes
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.wording import counted
from trtnode.serving.batching.axis_check import dependent_rows, no_batch_axis
from trtnode.serving.batching.batcher import DynamicBatcher
from trtnode.serving.batching.length_batches import LengthBatches
from trtnode.serving.batching.lengths import Lengths, lengths_of
from trtnode.serving.batching.padding_check import PaddingCheck
from trtnode.serving.batching.queued_request import Then
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import ServingError, UnavailableError
from trtnode.serving.executables.interface import Run, ServedExecutable
from trtnode.serving.executables.tiled import TiledExecutable
from trtnode.serving.models.image_decoder import ImageDecoder
from trtnode.serving.models.instance_pool import InstancePool
from trtnode.serving.models.interface_check import log_unlisted, served_signature
from trtnode.serving.models.pipelines import image_decoders
from trtnode.serving.models.warmup import warm_lengths, warm_up
from trtnode.serving.protocol.request_cache import RequestCache
from trtnode.serving.protocol.wire_signature import MESSAGE_BYTES, WireSignature, WireTensor
from trtnode.serving.schema.model import OPTIONS, BatchingConfig, ModelConfig
from trtnode.serving.telemetry.request_stats import Durations, ModelCounts
from trtnode.serving.threads.cpu_affinity import placed
from trtnode.serving.threads.inline_policy import InlinePolicy
from trtnode.serving.triton.conversion import triton_config
from trtnode.serving.triton.wire import Reshapes, as_clients_see

logger = logging.getLogger(__name__)

Loader = Callable[[ModelConfig], ServedExecutable]
"""Makes a model ready to run; its errors say what the user can do."""


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
        self._config = config
        if interim:
            options = dataclasses.replace(config.options, engine=NATIVE)
            self._config = config.model_copy(update={OPTIONS: options, "variants": config.best_variant()})
        self._on_loss = on_loss
        self._message_bytes = message_bytes
        self._files = files
        self._users: set[object] = set()
        self._retired = False
        self._unused = threading.Event()
        self._executable: ServedExecutable | None = None
        self._runner: InstancePool | DynamicBatcher | None = None
        self._facts: Mapping[str, Any] = {}
        self._cache: RequestCache | None = None
        self._all_outputs: Sequence[WireTensor] | None = None
        self._images: Mapping[str, ImageDecoder] = {}
        self._reshapes = Reshapes.of(triton_config(config))

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
        if self._cache is None:
            raise UnavailableError(f"model {self.name!r} is not ready ({self.state})")
        return self._cache

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
        """The engine of the model, in the form of Triton's platform names."""
        engine = self._facts.get("engine", "native")
        return "onnxruntime_onnx" if engine == "native" else f"{engine}_onnx"

    @property
    def instances(self) -> int:
        """The number of requests, or batches, that run at the same time."""
        return self._config.instances

    @property
    def batching(self) -> BatchingConfig | None:
        """The configuration of batching; None if they run one by one."""
        return self._config.batching if isinstance(self._runner, DynamicBatcher) else None

    @property
    def config(self) -> ModelConfig:
        """Its configuration; the path is that of its file, of several variants that of the one that was chosen."""
        return self._config

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts of the executable about itself; empty until it is loaded."""
        return self._facts

    def variants(self) -> list[dict[str, Any]]:
        """Return the variants of the model with their figures, the best quality first; none where it has none."""
        found: list[dict[str, Any]] = self._facts.get("variants", [])
        return found

    @property
    def variant(self) -> str:
        """The name of the variant that answers; empty for a model without variants."""
        return next((str(one["name"]) for one in self.variants() if one["answers"]), "")

    def trace_facts(self) -> dict[str, str]:
        """Return the attributes of the spans of its requests."""
        named = {"trtnode.variant": self.variant} if self.variant else {}
        return {"trtnode.model": self.name, "trtnode.version": self.version, **named}

    def parameters(self) -> dict[str, str]:
        """Return facts of the loaded model for its configuration on the wire."""
        facts = self._facts
        variants = self.variants()
        return {
            **({"variants": json.dumps(variants)} if variants else {}),
            "engine": str(facts.get("engine", "native")),
            "segments": str(facts.get("segments", 0)),
            "native_nodes": str(facts.get("native_nodes", 0)),
            "precision": str(facts["precision"]["effective"]) if facts else "",
        }

    def load(self, loader: Loader) -> None:
        """Load and warm up the model; a failure becomes the state, its cause is logged."""
        started = time.monotonic()
        try:
            before = _resident_bytes()
            executable = loader(self._config)
            self._open(executable)
            executable.description["resident_bytes"] = max(0, _resident_bytes() - before)
            self.counts.describe(executable.description)
        except (EngineError, PartitionError, ServingError) as error:
            self.fail(str(error))
            return
        except Exception as error:
            logger.exception("Model %r failed to load", self.name)
            self.fail(f"unexpected {type(error).__name__}: {error}")
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
        """Note that a user is done with the model."""
        self._users.discard(user)
        if self._retired and not self._users:
            self._unused.set()

    def retire(self) -> None:
        """Let no further user in, wait until the last one has left, and free the model."""
        self.state, self._retired = State.UNLOADING, True
        if self._users:
            self._unused.wait()
        executable, self._executable, self._runner = self._executable, None, None
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

    def runs_inline(self, size: int) -> bool:
        """Return whether a request of so many bytes would wait for nothing and take a moment."""
        return self.inline.covers(size) and isinstance(self._runner, InstancePool) and self._runner.has_room

    def submit(
        self,
        feeds: Mapping[str, np.ndarray],
        outputs: Sequence[WireTensor],
        options: RequestOptions,
        durations: Durations,
        then: Then,
    ) -> None:
        """Run the model when an instance is free.

        Args:
            feeds: Arrays that fit the signature.
            outputs: Some of the signature.
            options: What the request asks of the queue.
            durations: Gets the time in the queue and of the run.
            then: Gets at least the arrays of ``outputs``. Or it gets InvalidInputError if the model's own check refuses
                an input, QueueTimeoutError, CancelledRequestError, or what the run raised.

        Raises:
            InvalidRequestError: There are more rows than a batch may have.
            UnavailableError: The queue is full.
        """
        assert self._runner is not None, "only users that have entered run the model"
        if self.interim:
            self.counts.add_fallback("building")
        if self._reshapes is not None:
            feeds, then = self._reshapes.taken(feeds), self._reshapes.passing_on(then)
        names = None if outputs is self._all_outputs else [tensor.name for tensor in outputs]
        self._runner.submit(feeds, names, options, durations, then)

    def _open(self, executable: ServedExecutable) -> None:
        model = cast(Executable, executable.model if isinstance(executable, TiledExecutable) else executable)
        try:
            signature = served_signature(self._config, executable)
            folder = self._config.path.parent
            folder = folder.parent if folder.name.isdecimal() else folder
            seen = as_clients_see(signature, triton_config(self._config), folder)
            if self._config.interface is None:
                log_unlisted(signature, executable.inputs, executable.outputs)
            if self._config.preprocess and executable.inputs:
                self._images = image_decoders(self._config, executable.inputs[0].name)
            unlike = self._unlike_lengths(executable, signature)
            self._runner = self._open_runner(executable, signature, unlike)
            warm_up(executable, signature, self._config, self.batching)
            if unlike is not None:
                warm_lengths(executable, signature, unlike, self._config, self.batching)
            model.keep_kernels()
        except BaseException:
            self._runner = None
            executable.close()
            raise
        model.on_fallback = self.counts.add_fallback
        model.on_loss = self._lose
        if self._config.nan is not None:
            model.nan_natively = self._config.nan == "native"
        if len(signature.outputs) == len(executable.outputs):
            self._all_outputs = seen.outputs
        self._executable, self._facts = executable, executable.description
        if self.variant:
            chosen = next(one for one in self._config.variants if one.label == self.variant)
            self._config = self._config.of_variant(chosen)
        seen = dataclasses.replace(seen, message_bytes=self._message_bytes)
        signature, is_batched = seen.taking_images(self._images), self.batching is not None
        self._cache = RequestCache(signature, self.version, variant=self.variant, is_batched=is_batched)

    def _open_runner(
        self, executable: ServedExecutable, signature: WireSignature, unlike: LengthBatches | None
    ) -> InstancePool | DynamicBatcher:
        # Requests fit the signature once they are read; only what images were decoded to is checked again.
        run: Run = placed(executable.run if self._images else executable.run_checked)
        run = run if unlike is None else unlike.padding(run)
        batching, instances = self._config.batching, self._config.instances
        if batching is None:
            return InstancePool(run, instances, self.counts)
        problem = no_batch_axis(signature) or dependent_rows(executable, signature)
        if problem:
            logger.warning("Model %r: requests run one by one, without batching: %s", self.name, problem)
            return InstancePool(run, instances, self.counts)
        inputs, runs_apart = signature.required, executable.needs_native
        return DynamicBatcher(run, inputs, batching, instances, self.counts, runs_apart, unlike)

    def _unlike_lengths(self, executable: ServedExecutable, signature: WireSignature) -> LengthBatches | None:
        """Return what pads requests; None where it isn't configured, or answers would depend on padding."""
        config = self._config.lengths
        if config is None or self.interim:
            return None
        joins = self._config.batching is not None and no_batch_axis(signature) is None
        lengths = lengths_of(None if config == "auto" else config, executable.inputs)
        if isinstance(lengths, Lengths):
            lengths = PaddingCheck(executable, signature, lengths, joins=joins).run()
        if isinstance(lengths, Lengths):
            axes = ", ".join(f"axis {axis} of {name!r}" for name, axis in lengths.axes.items())
            logger.info("Model %r: requests are padded to %s, on %s", self.name, list(lengths.buckets), axes)
            return LengthBatches(lengths, self.counts)
        logger.warning("Model %r: requests are not padded, whatever their length: %s", self.name, lengths)
        return None

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


def _summary(facts: Mapping[str, Any]) -> str:
    unchecked = f" ({facts['unchecked']} unchecked)" if facts["unchecked"] else ""
    segments, nodes = counted(facts["segments"], "segment"), counted(facts["native_nodes"], "native node")
    referred = f" ({len(facts['reference_nodes'])} in onnx.reference)" if facts["reference_nodes"] else ""
    precision = facts["precision"]["effective"]
    return f"engine {facts['engine']}, {segments}{unchecked}, {nodes}{referred}, precision {precision}"
