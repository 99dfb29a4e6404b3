"""Rewrites a segment's model so that its nodes compute in the precisions that are wanted."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable

import onnx

from engines.base import PrecisionSupport
from engines.calibration_table import CalibrationTable
from engines.errors import PrecisionError
from engines.half import to_half
from engines.precision_rules import EXACTNESS, PRECISIONS
from engines.quantization import SCHEMES, is_quantized, quantize
from partitioner import Segment


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How one segment computes.

    Attributes:
        asked: What the user asked for.
        nodes: Precision of each of its nodes, in order; none for all float32.
        table: Ranges for what is quantized, or may leave float16's range.
    """

    asked: str = "fp32"
    nodes: tuple[str, ...] = ()
    table: CalibrationTable | None = None

    @property
    def is_float32(self) -> bool:
        """Whether there is nothing to transform."""
        return set(self.nodes) <= {"fp32"}

    @property
    def key(self) -> str:
        """Tells settings apart in the cache's keys."""
        if self.is_float32:
            return ""
        ranges = () if self.table is None else sorted(self.table.ranges.items())
        return repr((self.nodes, ranges))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """A segment's model, ready to build.

    Attributes:
        model: With the types, and the Quantize and Dequantize operators, of its setting.
        floats: Precision to ask the library for, of what isn't quantized.
        effective: What the engine will compute in.
    """

    model: onnx.ModelProto
    floats: str
    effective: str


def check_available(backend: str, support: PrecisionSupport, precisions: Iterable[str]) -> None:
    """Refuse precisions that a backend doesn't have.

    Raises:
        PrecisionError: Names the precision and what there is.
    """
    for precision in precisions:
        if precision not in support.effective:
            known = ", ".join(sorted(support.effective, key=PRECISIONS.index))
            raise PrecisionError(f"The engine {backend} has no {precision}; it has {known}. Ask for one of these.")


def transform(
    model: onnx.ModelProto, segment: Segment, setting: Setting, backend: str, support: PrecisionSupport
) -> Transformed:
    """Rewrite a segment's model so that its nodes compute as a setting says.

    Args:
        model: The segment, in float32.
        segment: Its nodes.
        setting: A precision for each node.
        backend: Name of the library that will build it.
        support: What that library can compute in.

    Returns:
        The model for the library. A segment that is quantized already keeps its own Quantize and Dequantize operators.
        Where a library takes floats in one precision an engine, that is the most exact one that a node asks for.
    """
    if setting.is_float32:
        return Transformed(model=model, floats="fp32", effective=support.effective["fp32"])
    wanted = {node.op.outputs[0].name or "": p for node, p in zip(segment.nodes, setting.nodes, strict=True)}
    ranges = None if setting.table is None else setting.table.ranges
    quantized = is_quantized(model)
    if "int8" in wanted.values() and not quantized and setting.table is not None:
        floats = {name for name, precision in wanted.items() if precision != "int8"}
        model = quantize(model, setting.table, SCHEMES[backend], keep=_identities(segment, floats))
        quantized = is_quantized(model)
    left = {precision for precision in wanted.values() if precision != "int8"} or {"fp32"}
    for precision in sorted(left & support.typed):
        keep = [name for name, one in wanted.items() if one != precision]
        model = to_half(model, precision, keep=keep, ranges=ranges)
    floats_in = max(left, key=EXACTNESS.__getitem__) if left.isdisjoint(support.typed) else "fp32"
    effective = "int8" if quantized and "int8" in wanted.values() else _effective(left, floats_in, support)
    return Transformed(model=model, floats=floats_in, effective=effective)


def _effective(left: set[str], floats: str, support: PrecisionSupport) -> str:
    typed = left & support.typed
    return min(typed, key=EXACTNESS.__getitem__) if typed else support.effective[floats]


def _identities(segment: Segment, first_outputs: set[str]) -> list[str]:
    return [node.name for node in segment.nodes if node.op.outputs[0].name in first_outputs]
