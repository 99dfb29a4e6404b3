"""Builds for GPUs that are not here, and the types that some of these lack. TensorRT for RTX alone can.

The types were measured with release 1.7; ``tests/engines/tensorrt/test_rtx_types.py`` builds each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from trtnode.engines.backends.names import TARGET_NAMES
from trtnode.engines.errors import BuildError
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import dimensions, input_of

LACKED_TYPES: Mapping[ir.DataType, frozenset[str]] = {
    ir.DataType.BFLOAT16: frozenset({"sm75"}),
    ir.DataType.FLOAT8E4M3FN: frozenset({"sm75", "sm80", "sm86"}),
    ir.DataType.INT4: frozenset({"sm75"}),
    ir.DataType.FLOAT4E2M1: frozenset({"sm75", "sm80", "sm86", "sm89"}),
}
"""The targets that lack an element type."""

PRECISION_TYPES: Mapping[str, ir.DataType] = {
    "bf16": ir.DataType.BFLOAT16,
    "fp8": ir.DataType.FLOAT8E4M3FN,
    "int4": ir.DataType.INT4,
}
"""The element type that a precision needs beside those of every target."""

PRODUCTS = frozenset({"GRU", "Gemm", "LSTM", "MatMul", "RNN"})
"""Operators that compute matrix products, which Turing has in float16 and int8 alone."""

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
"""Operators that are matrix products where they have three spatial dimensions."""

WITHOUT_FLOAT32_PRODUCTS = frozenset({"sm75"})

NOWHERE: frozenset[str] = frozenset()

RANK_OF_VOLUMES = 5

FLOAT32 = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types that engines compute in float32."""


def set_targets(trt: Any, config: Any, targets: Sequence[str]) -> None:
    """Name the GPUs to build for; without any the library builds for every one from Ampere on.

    Args:
        trt: The module of the library.
        config: A ``trt.IBuilderConfig``.
        targets: Names, for example ``sm86``.

    Raises:
        BuildError: The library doesn't know one.
    """
    if not targets:
        return
    config.num_compute_capabilities = len(targets)
    for index, name in enumerate(targets):
        if not config.set_compute_capability(trt.ComputeCapability.__members__[name.upper()], index):
            raise BuildError(f"{trt.__name__} refuses target {name}.")


def check_types(node: Node, targets: Collection[str]) -> Verdict:
    """Refuse a node with a type that one of the targets lacks.

    Args:
        node: Of a cleaned graph.
        targets: Names of all GPUs that the engine is to run on; none for a library without targets.
    """
    for value in (*node.op.inputs, *node.op.outputs):
        if value is None or value.dtype is None:
            continue
        lacked_by = LACKED_TYPES.get(value.dtype, NOWHERE)
        if lacked_by.intersection(targets):
            return _refusal(f"{value.name!r} is {value.dtype.name.lower()}", lacked_by, targets)
    if _is_float32_product(node) and WITHOUT_FLOAT32_PRODUCTS.intersection(targets):
        return _refusal(f"It is a {node.op_type} in float32", WITHOUT_FLOAT32_PRODUCTS, targets)
    return SUPPORTED


def lacking_precisions(targets: Collection[str]) -> dict[str, str]:
    """Return the precisions that at least one of the targets lacks, and which targets those are, in a few words."""
    needed = {name: LACKED_TYPES[dtype] for name, dtype in PRECISION_TYPES.items()}
    return {name: _split(lacked_by, targets) for name, lacked_by in needed.items() if lacked_by.intersection(targets)}


def _is_float32_product(node: Node) -> bool:
    first = input_of(node.op, 0)
    if first is None or first.dtype not in FLOAT32:
        return False
    if node.op_type in CONVOLUTIONS:
        return len(dimensions(first) or ()) == RANK_OF_VOLUMES
    return node.op_type in PRODUCTS or (node.op_type == "Einsum" and len(node.op.inputs) > 1)


def _refusal(fact: str, lacked_by: Collection[str], targets: Collection[str]) -> Verdict:
    return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"{fact}: {_split(lacked_by, targets)}.")


def _split(lacked_by: Collection[str], targets: Collection[str]) -> str:
    lacking = " and ".join(name for name in TARGET_NAMES if name in lacked_by and name in targets)
    able = ", ".join(name for name in TARGET_NAMES if name not in lacked_by)
    return f"{lacking} can't compute that; {able} can"
