"""The reference backend, onnx.reference: slow, without a library beyond onnx, and exact to the specification.

Its engine bytes are the segment's ONNX model. Tests compare every other backend with it, and run the code above a
backend on it. ``ReferenceSession`` is the last resort for nodes that nothing else has a kernel for.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import DEFAULTS, Backend, Buffer, Engine, LoadOptions, PrecisionSupport
from trtnode.engines.errors import BuildError, EngineRejectedError, ExecutionError
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Node, TensorSpec
from trtnode.partitioner.model.external_data import read_self_contained
from trtnode.partitioner.model.values import ONNX_DOMAINS

Evaluator = Callable[[Mapping[str, np.ndarray]], Sequence[Any]]
"""Computes a model's outputs, in its order, from arrays by input name. Several threads may call it."""


class ReferenceBackend(Backend):
    """Runs segments with the onnx package's own reference implementation."""

    name = "reference"

    def version(self) -> str:
        """Return the version of the onnx package."""
        return onnx.__version__

    def device(self) -> Device:
        """Return the device of Python, which runs anywhere."""
        return Device(features="python", name="python")

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """Accept nearly every operator; random ones have no single right answer."""
        if node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial", "Dropout"):
            return Verdict(ReasonCode.UNSUPPORTED_OP, f"{node.op_type} is random.")
        if node.domain not in ONNX_DOMAINS:
            return Verdict(ReasonCode.FOREIGN_DOMAIN, f"{node.op_type} is of domain {node.domain}.")
        return SUPPORTED

    def precision_support(self, options: BuildOptions | None = None) -> PrecisionSupport:
        """Return the types of models, none of which is faster than another."""
        return PrecisionSupport(effective={"fp32": "fp32", "fp16": "fp16"}, typed=frozenset({"fp16"}))

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Check that the reference loads the model, and return the model itself.

        Raises:
            BuildError: The reference refuses it.
        """
        proto = onnx.load(model)
        ReferenceSession(proto)
        return proto.SerializeToString(deterministic=True)

    def load(self, engine: bytes | memoryview, envelope: Envelope, options: LoadOptions = DEFAULTS) -> ReferenceEngine:
        """Load the model again.

        Raises:
            EngineRejectedError: The bytes are no model.
        """
        try:
            session = ReferenceSession(read_self_contained(engine))
            return ReferenceEngine(session.run, envelope.inputs, envelope.outputs)
        except Exception as error:
            raise EngineRejectedError("onnx.reference", str(error)) from error


class ReferenceSession:
    """A model in onnx.reference, which runs and checks what native execution refuses.

    Attributes:
        outputs: Names of the outputs.
    """

    def __init__(self, model: pathlib.Path | onnx.ModelProto) -> None:
        """Load a model.

        Raises:
            BuildError: The reference refuses it.
        """
        proto = onnx.load(model) if isinstance(model, pathlib.Path) else model
        try:
            self._evaluator = ReferenceEvaluator(proto)
        except Exception as error:
            raise BuildError(f"onnx.reference: {error}") from error
        self.outputs = tuple(v.name for v in proto.graph.output)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run on numpy arrays.

        Raises:
            ExecutionError: The reference failed.
            MemoryError: It asked for more memory than this process may use.
        """
        try:
            return list(self._evaluator.run(outputs, dict(feeds)))
        except MemoryError:
            raise
        except Exception as error:
            raise ExecutionError(f"onnx.reference: {error}") from error


class ReferenceEngine(Engine):
    """A model that a function evaluates on NumPy arrays."""

    def __init__(self, evaluator: Evaluator, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._evaluator = evaluator
        self._inputs: Sequence[Buffer] = ()
        self._outputs: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Remember the buffers."""
        self._inputs, self._outputs = inputs, outputs

    def run(self) -> Sequence[Buffer]:
        """Evaluate the model.

        Raises:
            ExecutionError: The evaluator failed.
        """
        results = self._evaluator({spec.name: buffer for spec, buffer in zip(self.inputs, self._inputs, strict=True)})
        if self._outputs is None:
            return [np.asarray(r, order="C") for r in results]
        for buffer, result in zip(self._outputs, results, strict=True):
            np.copyto(buffer, result)
        return self._outputs

    def fork(self) -> ReferenceEngine:
        """Return another engine of the same evaluator, which keeps no state between runs."""
        return ReferenceEngine(self._evaluator, self.inputs, self.outputs)
