"""A TensorRT engine as the rest of the program sees it: alone, or as a stage of a model on a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trtnode.engines.backends.protocols import Buffer
from trtnode.engines.cuda.programs import GpuPrograms, open_alone
from trtnode.engines.cuda.streams import ExecutionStream, GpuEngine, GpuStage, StreamPool
from trtnode.engines.tensorrt.loaded_engine import LoadedEngine
from trtnode.engines.tensorrt.stage import TensorRtStage
from trtnode.partitioner.graph.view import TensorSpec


class TensorRtEngine(GpuEngine):
    """A deserialized engine, for stages on streams, and for runs on the host's memory."""

    compiles_kernels = True

    def __init__(
        self, loaded: LoadedEngine, streams: StreamPool, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.streams = streams
        self.narrowed: Mapping[str, np.dtype] = {
            b.name: b.dtype for b in (*loaded.inputs, *loaded.outputs) if b.narrowed
        }
        self._loaded = loaded
        self._alone: list[GpuPrograms] = []  # shared by forks, and made when one of them first runs alone
        self._feeds: Sequence[Buffer] = ()
        self._results: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Set the buffers of ``run``."""
        self._feeds, self._results = inputs, outputs

    def run(self) -> Sequence[Buffer]:
        """Copy the inputs to the GPU, run, and copy the results back.

        Raises:
            OutOfRangeError: The inputs are outside all profiles, or empty.
            ExecutionError: TensorRT or CUDA failed.
        """
        feeds = {spec.name: buffer for spec, buffer in zip(self.inputs, self._feeds, strict=True)}
        if not self._alone:
            self._alone.append(open_alone(self))
        results = self._alone[0].run(feeds)
        if self._results is None:
            return [results[spec.name] for spec in self.outputs]
        for spec, buffer in zip(self.outputs, self._results, strict=True):
            buffer[...] = results[spec.name]
        return self._results

    def take_kernels(self, kernels: bytes) -> bool:
        """Take kernels of an earlier process before the first run; return False where they are for something else."""
        with self.streams.device:
            return self._loaded.take_kernels(kernels)

    def kernels(self) -> bytes:
        """Return the kernels that were compiled so far, or taken; empty where the library compiles none."""
        with self.streams.device:
            return self._loaded.kernels()

    def fork(self) -> TensorRtEngine:
        """Return another user of the same execution contexts, which the streams keep apart."""
        engine = TensorRtEngine(self._loaded, self.streams, self.inputs, self.outputs)
        engine._alone = self._alone
        return engine

    def on_stream(self, stream: ExecutionStream, inputs: Sequence[str], outputs: Sequence[str]) -> GpuStage:
        """Return execution contexts of this engine on one stream, as a stage of a model."""
        return TensorRtStage(self._loaded, stream, inputs, outputs)
