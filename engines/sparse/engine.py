"""A loaded engine: a session of ONNX Runtime with the sparse operators."""

from __future__ import annotations

from collections.abc import Sequence

from trtnode.engines.backends.protocols import Buffer, Engine
from trtnode.engines.onnxruntime.session import BoundSession, NativeSession
from trtnode.partitioner.graph.view import TensorSpec


class SparseEngine(Engine):
    """Runs of a session on buffers. Engines that were forked share the session."""

    reads_in_place = True

    def __init__(self, session: NativeSession, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._session = session
        self._feeds: dict[str, Buffer] = {}
        self._outputs: Sequence[Buffer] | None = None
        self._bound: BoundSession | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Bind the session to buffers. The same ones again cost nothing."""
        feeds = {spec.name: buffer for spec, buffer in zip(self.inputs, inputs, strict=True)}
        bound = bool(self._feeds) and all(feeds[name] is buffer for name, buffer in self._feeds.items())
        if bound and outputs is self._outputs:
            return
        self._feeds, self._outputs = feeds, outputs
        if outputs is not None:
            results = {spec.name: buffer for spec, buffer in zip(self.outputs, outputs, strict=True)}
            self._bound = self._session.bind({**feeds, **results})

    def run(self) -> Sequence[Buffer]:
        """Run on the bound buffers.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        if self._outputs is None:
            return self._session.run(self._feeds, [spec.name for spec in self.outputs])
        assert self._bound is not None
        self._bound.run()
        return self._outputs

    def run_on(self, inputs: Sequence[Buffer]) -> Sequence[Buffer]:
        """Run on arrays wherever they are.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        feeds = {spec.name: array for spec, array in zip(self.inputs, inputs, strict=True)}
        return self._session.run(feeds, [spec.name for spec in self.outputs])

    def fork(self) -> SparseEngine:
        """Return another engine of the same session, which keeps no state between runs."""
        return SparseEngine(self._session, self.inputs, self.outputs)
