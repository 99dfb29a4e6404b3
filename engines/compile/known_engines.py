"""Knowledge of this machine about engines that were built elsewhere: its device, whether they are right, their kernels.

An engine that was built where nothing could run it is compared with native execution before its first request, in a
child process. The answer is kept in the cache, as are the kernels that a library compiles for the GPU of this machine.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
from collections.abc import Mapping

import onnx_ir as ir

from trtnode.engines.artifact.cache import EngineCache, builder_version, engine_key
from trtnode.engines.artifact.compiled_model import SHAPES
from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.artifact.sidecars import engine_bytes
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.build_environment import build_environment
from trtnode.engines.backends.cpu_features import processor_name
from trtnode.engines.backends.protocols import Backend, CompilesKernels, Engine
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.backends.shape_range import Profile, profile_from_json
from trtnode.engines.build.checker import Checker, EngineFile
from trtnode.engines.build.context import CompileContext
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.inputs.source import SourceModel
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.partitioner.compiled.stripping import strip_engines
from trtnode.partitioner.compiled.trtnode import embedded_engine
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model

logger = logging.getLogger(__name__)


class KnownEngines:
    """Implements ``trtnode.engines.runtime.known_engines.KnownEngines`` with a cache and a child process."""

    def __init__(self, model: pathlib.Path, cache: EngineCache | None) -> None:
        """Know the engines of a model.

        Args:
            model: The compiled file; sidecars stand beside it.
            cache: Place of the knowledge; None keeps nothing.
        """
        self._model = model
        self._cache = cache

    def device(self, backend: Backend) -> Device:
        """Return the device of this machine. OpenVINO compiles a model to name it, so the cache keeps its answer."""
        if self._cache is None or not backend.on_cpu:
            return backend.device()
        key = engine_key(kind="device", processor=processor_name(), **build_environment(backend))
        record = self._cache.get_record(key)
        if record is not None and record.keys() == {field.name for field in dataclasses.fields(Device)}:
            return Device(**record)
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
        if self._cache is None or not isinstance(engine, CompilesKernels):
            return
        kernels = self._cache.get_kernels(_key("kernels", envelope))
        if kernels and not engine.take_kernels(kernels):
            logger.warning("%s: the library ignores kernels that were compiled before; they are compiled", self._model)

    def keep_kernels(self, envelope: Envelope, engine: Engine) -> None:
        """Keep the kernels that an engine has compiled."""
        if self._cache is None or not isinstance(engine, CompilesKernels):
            return
        kernels, key = engine.kernels(), _key("kernels", envelope)
        if kernels and kernels != self._cache.get_kernels(key):
            self._cache.put_kernels(key, kernels)

    def _recall(self, envelope: Envelope) -> str | None:
        """Return what was found before: a problem, or nothing; None where nobody has looked."""
        record = self._cache.get_record(_key("comparison", envelope)) if self._cache else None
        return None if record is None else str(record.get("problem", ""))

    def _compare_now(self, graph: Graph, engines: Mapping[str, Envelope]) -> dict[str, str]:
        try:
            native = _without_engines(graph, self._model)
        except PartitionError as error:
            return dict.fromkeys(engines, str(error))
        segments = [_segment(graph, native, name) for name in engines]
        with SubprocessWorker() as worker, TemporaryFolder() as folder:
            context = CompileContext(
                source=SourceModel(path=self._model, origin=self._model),
                options=CompileOptions(shapes=_shapes(graph.model)),
                engine=next(iter(engines.values())).backend,
                cache=None,
                worker=worker,
                folder=pathlib.Path(folder),
            )
            files = {name: self._write(graph, name, envelope, context.folder) for name, envelope in engines.items()}
            refusals = Checker(context).check(native, segments, files)
        for name, envelope in engines.items():
            self._remember(envelope, refusals.get(name))
        return {name: refusals[name].detail if name in refusals else "" for name in engines}

    def _write(self, graph: Graph, name: str, envelope: Envelope, folder: pathlib.Path) -> EngineFile:
        path = folder / f"{len(list(folder.iterdir()))}.engine"
        path.write_bytes(engine_bytes(name, embedded_engine(_trtnode(graph, name)), self._model.parent))
        return EngineFile(path=path, envelope=envelope.to_json())

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


def _without_engines(graph: Graph, path: pathlib.Path) -> Graph:
    """Return a compiled model as it was before.

    Raises:
        PartitionError: It lacks the nodes that engines replaced.
    """
    proto = ir.to_proto(graph.model)
    strip_engines(proto)
    return Graph.of(view_model(proto, path))


def _segment(graph: Graph, native: Graph, name: str) -> Segment:
    """Return the nodes that an engine replaced, with the values that they have there."""
    op = _trtnode(graph, name)
    produced = {v.name for inner in graph.model.functions[op.op_identifier()] for v in inner.outputs}
    values = {value.name: value for value in native.tensors}
    (node,) = (node for node in graph.nodes if node.op is op)
    return Segment(
        name=name,
        level=0,
        nodes=tuple(n for n in native.nodes if produced.intersection(v.name for v in n.op.outputs)),
        inputs=tuple(values[v.name] for v in node.reads),
        outputs=tuple(values[v.name] for v in op.outputs),
    )


def _trtnode(graph: Graph, name: str) -> ir.Node:
    return next(node.op for node in graph.nodes if node.name == name)


def _shapes(model: ir.Model) -> tuple[Profile, ...]:
    """Return the shapes that the engines were built for; none where the file doesn't say."""
    try:
        return tuple(map(profile_from_json, json.loads(model.metadata_props.get(SHAPES, "[]"))))
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        logger.warning("The property %s of the model can't be read: %s", SHAPES, error)
        return ()
