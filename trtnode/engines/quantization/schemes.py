"""Quantized types, and the tensors that each engine library takes in eight bits, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from trtnode.engines.backends.names import TYPED_ONNX

WEIGHT_AXES = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Axis of the second input that counts output channels, where it is constant; Gemm's is 0 if it is transposed."""

MOVING = frozenset("Flatten MaxPool Reshape Squeeze Transpose Unsqueeze".split())
"""Their result holds values of their first input, so both have one scale."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedType:
    """Numbers that quantized tensors hold.

    Attributes:
        name: Name of the precision. It stands in the names of new tensors.
        dtype: Element type.
        largest: The number that the largest value of a range becomes.
        opset: The first opset that has it in the forms that are written.
        ir_version: Of that opset.
    """

    name: str
    dtype: np.dtype
    largest: float
    opset: int
    ir_version: int

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Round values in steps of the scale to these numbers; those beyond the range become the last ones."""
        inside = values.clip(-self.largest, self.largest)
        return (inside if self.dtype == FLOAT8.dtype else np.rint(inside)).astype(self.dtype)


INT8 = QuantizedType(name="int8", dtype=np.dtype(np.int8), largest=127, opset=13, ir_version=7)
FLOAT8 = QuantizedType(name="fp8", dtype=np.dtype(ml_dtypes.float8_e4m3fn), largest=448, opset=19, ir_version=9)
INT4 = QuantizedType(name="int4", dtype=np.dtype(ml_dtypes.int4), largest=7, opset=21, ir_version=10)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationScheme:
    """The form of quantized model that an engine library computes fastest.

    Attributes:
        signed: True if activations are int8 around zero; else they are uint8 with a zero point.
        weighted: Operators whose inputs are quantized, constant ones for each output channel.
        followers: Operators whose inputs are quantized too where all of them come from quantized nodes.
        residual_only: True if an Add is quantized only on the input that is not computed with it in one kernel.
        on_processor: True if the library computes on the processor, not on an accelerator.
        short_sums: True if the processor adds two products at a time in 16 bits, with saturation.
        numbers: The numbers of weights, and of activations where these are signed.
    """

    signed: bool = False
    weighted: frozenset[str] = frozenset(WEIGHT_AXES)
    followers: frozenset[str] = frozenset()
    residual_only: bool = False
    on_processor: bool = True
    short_sums: bool = False
    numbers: QuantizedType = INT8

    def reduced(self) -> QuantizationScheme:
        """Return the scheme for processors without VNNI, where VPMADDUBSW adds two products in 16 bits."""
        return dataclasses.replace(self, short_sums=True)

    def in_float8(self) -> QuantizationScheme:
        """Return the scheme with 8-bit floats around zero in the place of integers."""
        return dataclasses.replace(self, signed=True, numbers=FLOAT8)


ON_GPU = QuantizationScheme(signed=True, residual_only=True, on_processor=False)
"""Q/DQ on the inputs of what computes, and on the residual branch; zero points are 0 and biases float (TensorRT
developer guide, "Working with Quantized Types")."""

SCHEMES: Mapping[str, QuantizationScheme] = {
    **dict.fromkeys(("tensorrt", "tensorrt-rtx", TYPED_ONNX), ON_GPU),
    # Never signed: OpenVINO 2026.4 computes a Concat of int8 with unequal scales wrong. Never AveragePool: it pads
    # uint8 with 0 instead of the zero point.
    "openvino": QuantizationScheme(followers=frozenset({"Add", "Concat"}) | MOVING),
}
"""The scheme of each target, by name of the backend."""
