"""Element types of the tensors between engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from trtnode.partitioner.graph.view import TensorSpec

Types = Mapping[str, ir.DataType | None]
"""Element types by the model's names."""


def may_hold(declared: ir.DataType | None, held: ir.DataType | None) -> bool:
    """Return whether an engine may hold a tensor in a type, given the type that the model declares, if any."""
    return declared in (None, held) or (declared, held) == (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def typed(values: Iterable[TensorSpec], types: Types) -> tuple[TensorSpec, ...]:
    """Return the same tensors in other types, by name; those without an entry keep theirs."""
    return tuple(dataclasses.replace(s, dtype=types.get(s.name, s.dtype)) for s in values)
