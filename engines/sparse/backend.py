"""The backend of sparse weights: engines skip zeros, in sessions of ONNX Runtime with operators of this project."""

from __future__ import annotations

import pathlib
from collections.abc import Collection

import onnx

from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import DEFAULTS, Backend, LoadOptions
from trtnode.engines.errors import BuildError, EngineError, EngineRejectedError
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.engines.onnxruntime.session import NativeSession, runs_as_array, with_basic_optimizations
from trtnode.engines.sparse.engine import SparseEngine
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
