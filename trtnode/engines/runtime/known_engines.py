"""Knowledge of this machine about engines that were built elsewhere: its device, whether they are right, their kernels.

An engine that was built where nothing could run it is compared with native execution before its first request. The
answer is kept in the cache, as are the kernels that a library compiles for the GPU of this machine.
"""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Callable, Mapping

from trtnode.engines.artifact.cache import EngineCache, builder_version, engine_key, recall
from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.backends.build_environment import build_environment
from trtnode.engines.backends.cpu_features import processor_name
from trtnode.engines.backends.protocols import Backend, Engine
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph

logger = logging.getLogger(__name__)

Compare = Callable[[Graph, Mapping[str, Envelope]], Mapping[str, Refusal]]
"""Compares engines of a compiled model with native execution, by segment name; returns the refusals."""


class KnownEngines:
    """Knowledge about the engines of a compiled model."""

    def __init__(self, model: pathlib.Path, cache: EngineCache | None, compare: Compare) -> None:
        """Know the engines of a model.

        Args:
            model: The compiled file, for messages.
            cache: Place of the knowledge; None keeps nothing.
            compare: Raises PartitionError where the file lacks the nodes that engines replaced.
        """
        self._model = model
        self._cache = cache
        self._compare = compare

    def device(self, backend: Backend) -> Device:
        """Return the device of this machine. OpenVINO compiles a model to name it, so the cache keeps its answer."""
        if self._cache is None or not backend.on_cpu:
            return backend.device()
        key = engine_key(kind="device", processor=processor_name(), **build_environment(backend))
        if (known := self._cache.recall(key, lambda record: Device(**record))) is not None:
            return known
        device = backend.device()
        self._cache.put_record(key, dataclasses.asdict(device))
        return device

    def compare(self, graph: Graph, engines: Mapping[str, Envelope]) -> dict[str, str]:
        """Compare engines unless that was done here before; return a sentence for each that must not be used."""
        answers = {name: self._recall(envelope) for name, envelope in engines.items()}
        new = {name: envelope for name, envelope in engines.items() if answers[name] is None}
        if new:
            logger.info("%s: comparing %d engines with native execution, for the first time", self._model, len(new))
            answers |= self._compare_now(graph, new)
        return {name: f"its results are not trusted: {answer}" for name, answer in answers.items() if answer}

    def give_kernels(self, envelope: Envelope, engine: Engine) -> None:
        """Give an engine the kernels that were compiled for it here, before it runs."""
        if self._cache is None or not engine.compiles_kernels:
            return
        kernels = self._cache.get_kernels(_key("kernels", envelope))
        if kernels and not engine.take_kernels(kernels):
            logger.warning("%s: the library ignores kernels that were compiled before; they are compiled", self._model)

    def keep_kernels(self, envelope: Envelope, engine: Engine) -> None:
        """Keep the kernels that an engine has compiled."""
        if self._cache is None or not engine.compiles_kernels:
            return
        kernels, key = engine.kernels(), _key("kernels", envelope)
        if kernels and kernels != self._cache.get_kernels(key):
            self._cache.put_kernels(key, kernels)

    def _recall(self, envelope: Envelope) -> str | None:
        """Return what was found before: a problem, or nothing; None where nobody has looked."""
        return recall(self._cache, _key("comparison", envelope), lambda record: str(record["problem"]))

    def _compare_now(self, graph: Graph, engines: Mapping[str, Envelope]) -> dict[str, str]:
        try:
            refusals = self._compare(graph, engines)
        except PartitionError as error:
            return dict.fromkeys(engines, str(error))
        for name, envelope in engines.items():
            self._remember(envelope, refusals.get(name))
        return {name: refusals[name].detail if name in refusals else "" for name in engines}

    def _remember(self, envelope: Envelope, refusal: Refusal | None) -> None:
        if self._cache is not None and (refusal is None or refusal.lasting):
            self._cache.put_record(_key("comparison", envelope), {"problem": refusal.detail if refusal else ""})


def _key(kind: str, envelope: Envelope) -> str:
    """Return the key of a fact about an engine: it holds for the release of the library and for the GPU here."""
    backend = get_backend(envelope.backend)
    device = backend.device()
    return engine_key(
        kind=kind,
        engine=envelope.engine_sha256,
        segment=envelope.segment_sha256,
        backend=f"{backend.name} {backend.version()}",
        device=f"{device.features} {device.name}",
        native=native_version(),
        builder=builder_version(),
    )
