"""onnx.reference as a backend: slow, needs no library beyond onnx, and follows the specification to the letter.

Its engine bytes are the segment's ONNX model. Tests compare every other backend with it, and run the parts above a
backend on it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from engines.base import Buffer, Origin, PrecisionSupport
from engines.envelope import Device, Envelope
from engines.errors import BuildError, EngineRejectedError, ExecutionError
from engines.options import BuildOptions
from partitioner import SUPPORTED, Allowance, Node, ReasonCode, TensorSpec, Verdict


class ReferenceBackend:
    """Runs segments with the onnx package's own reference implementation."""

    name = "reference"
    trusted_ops: frozenset[str] = frozenset()
    needs_shapes = False
    profiling_options: Mapping[str, str] = {}

    def version(self) -> str:
        """Version of the onnx package."""
        return onnx.__version__

    def device(self) -> Device:
        """Python runs anywhere."""
        return Device(features="python", name="python")

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """The reference knows nearly every operator; random ones have no single right answer."""
        if node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial", "Dropout"):
            return Verdict(ReasonCode.UNSUPPORTED_OP, f"{node.op_type} is random.")
        return SUPPORTED

    def missing(self) -> str | None:
        """Nothing: the reference comes with onnx."""
        return None

    def precision_support(self) -> PrecisionSupport:
        """It follows the types of the model, and gains nothing by them."""
        half = frozenset({"fp16"})
        return PrecisionSupport(effective={"fp32": "fp32", "fp16": "fp16"}, typed=half, carried=half)

    def refusal(self, model: pathlib.Path) -> Verdict:
        """The reference takes whatever ``label`` lets through."""
        return SUPPORTED

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """The reference has no settings."""
        return {}

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Check that the reference can load the model, and keep the model itself.

        Raises:
            BuildError: It can't.
        """
        proto = onnx.load(model)
        try:
            ReferenceEvaluator(proto)
        except Exception as error:
            raise BuildError(str(error)) from error
        return proto.SerializeToString(deterministic=True)

    def load(
        self, engine: bytes, envelope: Envelope, *, threads: int | None = None, origin: Origin | None = None
    ) -> ReferenceEngine:
        """Load the model again.

        Raises:
            EngineRejectedError: The bytes are no model.
        """
        try:
            return ReferenceEngine(ReferenceEvaluator(engine), envelope.inputs, envelope.outputs)
        except Exception as error:
            raise EngineRejectedError("onnx.reference", str(error)) from error


class ReferenceSession:
    """A whole model in onnx.reference: the judge of engines where native execution refuses the model.

    Attributes:
        outputs: Names of the outputs.
    """

    def __init__(self, model: pathlib.Path) -> None:
        """Load a model.

        Raises:
            BuildError: The reference refuses it.
        """
        proto = onnx.load(model)
        try:
            self._evaluator = ReferenceEvaluator(proto)
        except Exception as error:
            raise BuildError(f"onnx.reference: {error}") from error
        self.outputs = tuple(v.name for v in proto.graph.output)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run on numpy arrays.

        Raises:
            ExecutionError: The reference failed.
        """
        try:
            return list(self._evaluator.run(outputs, dict(feeds)))
        except Exception as error:
            raise ExecutionError(f"onnx.reference: {error}") from error


class ReferenceEngine:
    """A model in onnx.reference."""

    def __init__(
        self, evaluator: ReferenceEvaluator, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._evaluator = evaluator
        self._inputs: Sequence[Buffer] = ()
        self._outputs: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Remember the buffers."""
        self._inputs, self._outputs = inputs, outputs

    def run(self) -> Sequence[Buffer]:
        """Evaluate node by node.

        Raises:
            ExecutionError: The reference failed.
        """
        feeds = {spec.name: buffer for spec, buffer in zip(self.inputs, self._inputs, strict=True)}
        try:
            results = self._evaluator.run(None, feeds)
        except Exception as error:
            raise ExecutionError(f"onnx.reference: {error}") from error
        if self._outputs is None:
            return [np.asarray(r, order="C") for r in results]
        for buffer, result in zip(self._outputs, results, strict=True):
            np.copyto(buffer, result)
        return self._outputs

    def fork(self) -> ReferenceEngine:
        """The evaluator keeps no state between runs, so it is shared."""
        return ReferenceEngine(self._evaluator, self.inputs, self.outputs)
