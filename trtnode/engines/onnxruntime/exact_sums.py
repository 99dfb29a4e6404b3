"""Keeps sums of 8-bit products exact on x86 processors without VNNI.

ONNX Runtime's kernels for uint8 activations and int8 weights add pairs of products in 16 bits there, with saturation.
Its kernels for uint8 weights don't. ``session.x64quantprecision`` makes it store the weights of most operators so, but
not those of QLinearMatMul. It also makes it refuse a QLinearConv of int8 activations, whose kernel is exact anyway.
Models that quantize weights alone need none of this, and with the option scales without zero points fail in them.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import numpy as np
import onnx

from trtnode.engines.backends.cpu_features import has_short_sums, usable_flags
from trtnode.engines.onnxruntime.workarounds.mentioned import mentions, model_with
from trtnode.partitioner.model.new_values import NewNames

UNSIGNED_WEIGHTS = {"session.x64quantprecision": "1"}
"""Session option: int8 weights become uint8 where their kernels would saturate."""

UNFUSED = {"session.disable_quant_qdq": "1"}
"""Session option: what stands between DequantizeLinear and QuantizeLinear is computed in floating point."""

MIDDLE = 128

REWRITTEN = ("QLinearConv", "QLinearMatMul")
QUANTIZING = ("Quantize", "QLinear", "Integer", "QAttention", "QGemm")
"""Parts of names of operators that multiply quantized activations."""

ACTIVATION_ZERO, WEIGHT, WEIGHT_ZERO = 2, 3, 5
"""Inputs of these operators."""


def exact_settings(source: pathlib.Path | onnx.ModelProto, *, unfused: bool) -> tuple[Mapping[str, str], ...]:
    """Return session options that keep sums exact on this processor; each is for what the one before refuses."""
    asked = UNFUSED if unfused else {}
    saturates = has_short_sums(usable_flags()) and mentions(source, QUANTIZING)
    return ({**asked, **UNSIGNED_WEIGHTS}, UNFUSED) if saturates else (asked,)


def with_unsigned_weights(source: pathlib.Path | onnx.ModelProto) -> pathlib.Path | onnx.ModelProto:
    """Return an equal model whose QLinear operators have uint8 weights where this processor would saturate.

    Args:
        source: A file or a small model. It is not changed.

    Returns:
        The model; the source itself where there is nothing to change, or where weights lie in files of their own.
    """
    found = model_with(source, REWRITTEN) if has_short_sums(usable_flags()) else None
    if found is None:
        return source
    model = onnx.ModelProto()
    model.CopyFrom(found)
    constants = {t.name: t for t in model.graph.initializer}
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in constants.values()):
        return source
    nodes = [n for n in model.graph.node if _saturates(n, constants)]
    unused = NewNames([*constants, *(name for node in model.graph.node for name in node.output)])
    unsigned = {node.input[i]: "" for node in nodes for i in (WEIGHT, WEIGHT_ZERO)}
    for name in unsigned:
        unsigned[name] = unused(f"{name}/uint8")
        values = onnx.numpy_helper.to_array(constants[name]).astype(np.int16) + MIDDLE
        model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.uint8), unsigned[name]))
    for node in nodes:
        for index in (WEIGHT, WEIGHT_ZERO):
            node.input[index] = unsigned[node.input[index]]
    return model if nodes else source


def _saturates(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Return whether a node multiplies uint8 activations by constant int8 weights."""
    if node.op_type not in REWRITTEN or node.domain:
        return False
    activation, weight, zero = (constants.get(node.input[i]) for i in (ACTIVATION_ZERO, WEIGHT, WEIGHT_ZERO))
    return (
        activation is not None
        and activation.data_type == onnx.TensorProto.UINT8
        and all(t is not None and t.data_type == onnx.TensorProto.INT8 for t in (weight, zero))
    )
