"""Rewrites a segment's model so that its nodes compute in the precisions that are wanted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable

import onnx

from engines.base import Backend
from engines.calibration_table import CalibrationTable
from engines.errors import PrecisionError
from engines.half import to_half
from engines.precision_rules import EXACTNESS, PRECISIONS
from engines.quantization import is_quantized, quantize, scheme_for
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
    def ranges_sha256(self) -> str:
        """Of the ranges and means that it uses; empty where it uses none."""
        if self.is_float32 or self.table is None:
            return ""
        learnt = [dict(self.table.ranges), dict(self.table.means)]
        return hashlib.sha256(json.dumps(learnt, sort_keys=True).encode()).hexdigest()

    @property
    def key(self) -> str:
        """Tells settings apart where engines are kept."""
        return json.dumps([self.asked, [] if self.is_float32 else self.nodes, self.ranges_sha256])

    def by_node(self, segment: Segment) -> dict[str, str]:
        """Precision of each node by identity; empty where all are float32."""
        if self.is_float32:
            return {}
        return {node.name: precision for node, precision in zip(segment.nodes, self.nodes, strict=True)}


FLOAT32 = Setting()
"""What every segment is built and checked in first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """A segment's model, ready to build.

    Attributes:
        model: With the types, and the Quantize and Dequantize operators, of its setting.
        floats: Precision to ask the library for, of what isn't quantized.
        effective: What the engine will compute in.
        is_float32: Whether nothing has changed.
    """

    model: onnx.ModelProto
    floats: str
    effective: str
    is_float32: bool = False


def check_available(backend: Backend, precisions: Iterable[str]) -> None:
    """Refuse precisions that a backend doesn't have.

    Raises:
        PrecisionError: Names the precision and what there is.
    """
    effective = backend.precision_support().effective
    for precision in precisions:
        if precision not in effective:
            known = ", ".join(sorted(effective, key=PRECISIONS.index))
            raise PrecisionError(f"The engine {backend.name} has no {precision}; it has {known}. Ask for one of these.")


def transform(model: onnx.ModelProto, segment: Segment, setting: Setting, backend: Backend) -> Transformed:
    """Rewrite a segment's model so that its nodes compute as a setting says.

    Args:
        model: The segment, in float32.
        segment: Its nodes.
        setting: A precision for each node.
        backend: The library that will build it.

    Returns:
        The model for the library. A segment that is quantized already keeps its own Quantize and Dequantize operators.
        Where a library takes floats in one precision an engine, that is the most exact one that a node asks for.
    """
    if setting.is_float32:
        return Transformed(model=model, floats="fp32", effective="fp32", is_float32=True)
    support = backend.precision_support()
    by_node = setting.by_node(segment)
    result, quantized = model, is_quantized(model)
    if "int8" in by_node.values() and setting.table is not None and not quantized:
        floats = [node for node in segment.nodes if by_node[node.name] != "int8"]
        names = {name for node in floats for name in (node.name, node.op.name or node.name)}
        result = quantize(model, setting.table, scheme_for(backend.name), keep=names)
        quantized = is_quantized(result)
    left = {precision for precision in by_node.values() if precision != "int8"} or {"fp32"}
    for precision in sorted(left & support.typed):
        keep = [n.op.outputs[0].name or "" for n in segment.nodes if by_node[n.name] != precision]
        ranges = None if setting.table is None else setting.table.ranges
        result = to_half(result, precision, keep=keep, ranges=ranges)
    asked = max(left - support.typed, key=EXACTNESS.__getitem__, default="fp32")
    floats_in = "fp32" if left & support.typed else support.effective[asked]
    typed = min(left & support.typed, key=EXACTNESS.__getitem__, default=floats_in)
    return Transformed(
        model=result,
        floats=floats_in,
        effective="int8" if quantized and "int8" in by_node.values() else typed,
        is_float32=result is model and floats_in == "fp32",
    )
