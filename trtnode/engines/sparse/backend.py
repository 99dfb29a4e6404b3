"""The backend of sparse weights: engines skip zeros, in sessions of ONNX Runtime with operators of this project."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Sequence

import onnx

from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import DEFAULTS, Backend, Buffer, Engine, LoadOptions
from trtnode.engines.errors import BuildError, EngineError, EngineRejectedError
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.engines.onnxruntime.session import BoundSession, NativeSession, runs_as_array, with_basic_optimizations
from trtnode.engines.sparse.library import LIBRARY, VERSION, instructions, missing_reason
from trtnode.engines.sparse.rewriting import with_sparse_layers
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Node, TensorSpec
from trtnode.partitioner.model.external_data import read_self_contained
from trtnode.partitioner.model.values import is_random, subgraphs


class SparseBackend(Backend):
    """Builds engines for segments with sparse layers, and takes the nodes around them along.

    Engine bytes are the segment's ONNX model, with packed weights. They are data, and hold for every processor.
    """

    name = "sparse"
    on_cpu = False

    def version(self) -> str:
        """Return the versions of the operators and of ONNX Runtime."""
        return f"{VERSION}+onnxruntime-{native_version()}"

    def device(self) -> Device:
        """Return the instruction set of the kernels here: what paid with one need not pay with another."""
        return Device(features=instructions(), name="CPU")

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """Take all that ONNX Runtime computes on plain tensors, so that nothing is cut around a sparse layer."""
        if node.domain:
            return Verdict(ReasonCode.FOREIGN_DOMAIN, f"{node.op_type} is of domain {node.domain}.")
        if any(True for _ in subgraphs(node.op)):
            return Verdict(ReasonCode.CONTROL_FLOW, f"{node.op_type} has subgraphs.")
        if is_random(node.op):
            return Verdict(ReasonCode.UNSUPPORTED_OP, f"{node.op_type} is random.")
        values = (v for v in (*node.op.inputs, *node.op.outputs) if v is not None and v.name)
        other = next((v for v in values if not runs_as_array(TensorSpec.of(v))), None)
        if other is None:
            return SUPPORTED
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"Tensor {other.name!r} is of a type that shares no memory.")

    def unavailable_reason(self) -> str | None:
        """Return why the kernels are missing; None if they are here."""
        return missing_reason()

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Pack the weights of layers that gain from it.

        Raises:
            BuildError: ONNX Runtime refuses the model.
        """
        try:
            rewritten, _ = with_sparse_layers(with_basic_optimizations(onnx.load(model)))
            NativeSession(rewritten, threads=1, operators=LIBRARY, name="a segment")
        except EngineError as error:
            raise BuildError(str(error)) from error
        return rewritten.SerializeToString(deterministic=True)

    def load(self, engine: bytes | memoryview, envelope: Envelope, options: LoadOptions = DEFAULTS) -> SparseEngine:
        """Load engine bytes.

        Raises:
            EngineRejectedError: They refer to files, or ONNX Runtime or the operators refuse them.
        """
        try:
            model = read_self_contained(engine)
            name = "a sparse engine"
            session = NativeSession(
                model, threads=options.threads, shares_cores=options.shares_cores, operators=LIBRARY, name=name
            )
        except Exception as error:  # damaged bytes raise protobuf's own error
            raise EngineRejectedError("the sparse engine", str(error)) from error
        return SparseEngine(session, envelope.inputs, envelope.outputs)


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
