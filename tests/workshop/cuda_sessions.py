"""An engine of ONNX Runtime's CUDA provider: whatever lies above TensorRT runs on a real GPU without TensorRT."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.backends.protocols import Buffer
from trtnode.engines.backends.reference import ReferenceBackend
from trtnode.engines.cuda.context import open_device
from trtnode.engines.cuda.programs import open_alone
from trtnode.engines.cuda.streams import (
    STREAMS,
    DeviceTensors,
    ExecutionStream,
    GpuEngine,
    GpuStage,
    HostTensors,
    StreamPool,
)
from trtnode.engines.runtime.gpu_native_stages import NativeOnGpu
from trtnode.engines.runtime.plan import PlanStage
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.external_data import read_self_contained

NAME = "cuda-sessions"


class CudaSessions(ReferenceBackend):
    """Its engine bytes are the segment's ONNX model."""

    name = NAME
    on_cpu = False

    def load(self, engine: bytes | memoryview, envelope: Envelope, _: Any = None) -> SessionEngine:  # type: ignore[override]
        return SessionEngine(read_self_contained(engine), streams(), envelope.inputs, envelope.outputs)


@functools.cache
def streams() -> StreamPool:
    return StreamPool(open_device(), STREAMS)


class SessionEngine(GpuEngine):
    narrowed: Mapping[str, np.dtype] = {}

    def __init__(
        self,
        model: onnx.ModelProto,
        streams: StreamPool,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
    ) -> None:
        self.inputs, self.outputs, self.streams, self.model = inputs, outputs, streams, model
        self._feeds: Sequence[Buffer] = ()
        self._results: Sequence[Buffer] = ()

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        self._feeds, self._results = inputs, outputs or ()

    def run(self) -> Sequence[Buffer]:
        results = self._alone.run({spec.name: feed for spec, feed in zip(self.inputs, self._feeds, strict=True)})
        for spec, buffer in zip(self.outputs, self._results, strict=False):
            buffer[...] = results[spec.name]
        return [results[spec.name] for spec in self.outputs]

    def fork(self) -> SessionEngine:
        return SessionEngine(self.model, self.streams, self.inputs, self.outputs)

    def on_stream(self, stream: ExecutionStream, inputs: Sequence[str], outputs: Sequence[str]) -> GpuStage:
        return SessionStage(self, stream, inputs, outputs)

    @functools.cached_property
    def _alone(self) -> Any:
        return open_alone(self)


class SessionStage:
    """A native stage of the GPU under the names of an engine's tensors in the model around it."""

    reads_host: tuple[str, ...] = ()
    writes_host: tuple[str, ...] = ()

    def __init__(
        self, engine: SessionEngine, stream: ExecutionStream, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        graph = ir.from_proto(engine.model).graph
        stage = PlanStage(
            name="engine", nodes=(), is_engine=True, inputs=tuple(graph.inputs), outputs=tuple(graph.outputs)
        )
        self._stage = NativeOnGpu(stream, engine.model, stage, ())
        self._reads = {spec.name: name for spec, name in zip(engine.inputs, inputs, strict=True)}
        self._writes = {spec.name: name for spec, name in zip(engine.outputs, outputs, strict=True)}
        self.reads_device, self.writes_device = tuple(inputs), tuple(outputs)
        self.attach, self.free = self._stage.attach, self._stage.free

    def __call__(self, host: HostTensors, device: DeviceTensors) -> None:
        own = {name: device[outer] for name, outer in self._reads.items()}
        self._stage(host, own)
        device.update((outer, own[name]) for name, outer in self._writes.items())
