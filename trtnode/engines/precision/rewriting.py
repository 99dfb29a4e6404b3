"""Rewrites a segment's model so that its nodes compute in the precisions of a setting."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping

import onnx
import onnx_ir as ir

from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import Backend, PrecisionSupport
from trtnode.engines.errors import PrecisionError, QuantizationError
from trtnode.engines.precision.float16 import HALF_TYPES, holds_halves, lacks_half_kernel, to_half
from trtnode.engines.precision.rules import CALIBRATED, EXACTNESS, PRECISIONS, QUANTIZED, WEIGHTS_ALONE
from trtnode.engines.quantization.opset_raising import raised_copy
from trtnode.engines.quantization.qdq_writer import is_quantized, quantize, scheme_for
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.engines.quantization.weight_blocks import store_in_blocks
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.view import Graph

logger = logging.getLogger(__name__)

VERSIONS: Mapping[str, tuple[int, int]] = {"fp16": (7, 3), "bf16": (22, 10)}
"""The first opset with all that is needed, and its file format: numbers in Cast, and convolutions in bfloat16."""

WITHOUT_KERNEL_AT_22 = frozenset(
    "GlobalLpPool MaxRoiPool Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign".split()
)
"""Operators that ONNX Runtime has kernels for below opset 22 alone."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Precisions of one segment.

    Attributes:
        asked: The precision that the user asked for.
        nodes: Precision of each of its nodes, in order; none for all float32.
        table: Ranges of tensors that are quantized, or may leave float16's range.
    """

    asked: str = "fp32"
    nodes: tuple[str, ...] = ()
    table: CalibrationTable | None = None

    @property
    def is_float32(self) -> bool:
        """True if there is nothing to transform."""
        return set(self.nodes) <= {"fp32"}

    @property
    def ranges_sha256(self) -> str:
        """Hash of the ranges, means and factors that it uses; empty where it uses none."""
        if self.is_float32 or self.table is None:
            return ""
        table = self.table
        learnt = [dict(part) for part in (table.ranges, table.means, table.factors, table.scaled_ranges)]
        return hashlib.sha256(json.dumps(learnt, sort_keys=True).encode()).hexdigest()

    @property
    def key(self) -> str:
        """Tells settings apart where engines are kept."""
        nodes = [] if self.is_float32 else self.nodes
        return json.dumps([self.asked, nodes, self.ranges_sha256])

    def by_node(self, segment: Segment) -> dict[str, str]:
        """Return the precision of each node by identity; empty where all are float32."""
        if self.is_float32:
            return {}
        return {node.name: precision for node, precision in zip(segment.nodes, self.nodes, strict=True)}


FLOAT32 = Setting()
"""The setting that every segment is built and checked in first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """A segment's model, ready to build.

    Attributes:
        model: The model with the types, and the Quantize and Dequantize operators, of its setting.
        floats: Precision to ask the library for, of nodes that aren't quantized.
        effective: The precision that the engine will compute in.
        without_kernel: Nodes that stay float32, since nothing here or in the library computes them in less.
        is_float32: True if nothing has changed.
    """

    model: onnx.ModelProto
    floats: str
    effective: str
    without_kernel: tuple[str, ...] = ()
    is_float32: bool = False


def check_available(backend: Backend, precisions: Iterable[str], options: BuildOptions | None = None) -> None:
    """Refuse precisions that a backend doesn't have, or that a GPU lacks which is to be built for.

    Raises:
        PrecisionError: One is lacking; the message names it and those that there are.
    """
    support = backend.precision_support(options)
    for precision in precisions:
        if precision in support.lacking:
            raise PrecisionError(
                f"The engine {backend.name} has no {precision} here: {support.lacking[precision]}. Build for targets "
                "that can (--targets, or tensorrt.targets in servable.yaml), or ask for another precision."
            )
        if precision not in support.effective:
            known = ", ".join(sorted(support.effective, key=PRECISIONS.index))
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
    result = _quantized(model, segment, setting, backend)
    without: list[str] = []
    for precision in sorted(_floats(by_node) & support.typed):
        keep, ranges, raised = _others(segment, by_node, precision), _ranges(setting), raised_for(result, precision)
        result = to_half(raised, precision, keep=keep, ranges=ranges)
        refused = _refused_types(result, precision, backend)
        if refused:
            result = to_half(raised, precision, keep=[*keep, *refused], ranges=ranges)
        asked = [node for node in segment.nodes if by_node[node.name] == precision]
        without += [n.name for n in asked if n.op.outputs[0].name in refused or lacks_half_kernel(ir.to_proto(n.op))]
    floats_in = _hint(by_node, support)
    written = [precision for precision in _floats(by_node) & support.typed if holds_halves(result, precision)]
    typed = min(written, key=EXACTNESS.__getitem__, default=floats_in)
    quantized = [p for p in PRECISIONS if p in QUANTIZED.intersection(by_node.values()) and is_quantized(result)]
    return Transformed(
        model=result,
        floats=floats_in,
        effective=next(iter(quantized), typed),
        without_kernel=tuple(without),
        is_float32=result is model and floats_in == "fp32",
    )


def _quantized(model: onnx.ModelProto, segment: Segment, setting: Setting, backend: Backend) -> onnx.ModelProto:
    """Return the model with Quantize and Dequantize operators around quantized nodes; itself if there are none."""
    by_node = setting.by_node(segment)
    if is_quantized(model):
        return model
    result = model
    if setting.table is not None:
        calibrated = sorted(CALIBRATED.intersection(by_node.values()))
        # A second call would scale the channels of float nodes again.
        table = setting.table if len(calibrated) == 1 else dataclasses.replace(setting.table, factors={})
        for precision in calibrated:
            keep = _identities_of_others(segment, by_node, precision)
            result = quantize(result, table, scheme_for(backend.name, precision), keep=keep)
    if WEIGHTS_ALONE in by_node.values():
        result = store_in_blocks(result, keep=_identities_of_others(segment, by_node, WEIGHTS_ALONE))
    return result


def _refused_types(model: onnx.ModelProto, precision: str, backend: Backend) -> set[str]:
    """Return the first outputs, under their names in float32, of nodes of a precision that a library refuses for it."""
    half = HALF_TYPES[precision]
    graph = Graph.of(ir.from_proto(model))
    typed = (n for n in graph.nodes if any(v and v.dtype == half for v in (*n.op.inputs, *n.op.outputs)))
    refused = (n for n in typed if n.op_type != "Cast" and backend.label(n).code == ReasonCode.UNSUPPORTED_DTYPE)
    return {(n.op.outputs[0].name or "").removesuffix(f"__{precision}") for n in refused}


def raised_for(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """Return a model at an opset with all that a precision needs; itself where it can't be raised, or needn't be."""
    opset, ir_version = VERSIONS[precision]
    old = any(o.domain in ("", "ai.onnx") and o.version < opset for o in model.opset_import)
    if not old or (precision == "bf16" and any(n.op_type in WITHOUT_KERNEL_AT_22 for n in model.graph.node)):
        return model
    try:
        return ir.to_proto(raised_copy(model, opset, ir_version))
    except QuantizationError as error:
        logger.info("Some operators stay float32: %s", error)
        return model


def _identities_of_others(segment: Segment, by_node: Mapping[str, str], precision: str) -> set[str]:
    """Return the identities of the nodes that are not of a precision, in this model and by themselves."""
    others = [node for node in segment.nodes if by_node[node.name] != precision]
    return {name for node in others for name in (node.name, node.op.name or node.name)}


def _floats(by_node: Mapping[str, str]) -> set[str]:
    """Return the precisions of nodes that aren't quantized."""
    return set(by_node.values()) - QUANTIZED or {"fp32"}


def _hint(by_node: Mapping[str, str], support: PrecisionSupport) -> str:
    """Return the precision in which a library computes floats that it takes in one precision an engine."""
    left = _floats(by_node)
    asked = max(left - support.typed, key=EXACTNESS.__getitem__, default="fp32")
    return "fp32" if left & support.typed else support.effective[asked]


def _others(segment: Segment, by_node: Mapping[str, str], precision: str) -> list[str]:
    """Return the first outputs of the nodes that are not of a precision."""
    return [n.op.outputs[0].name or "" for n in segment.nodes if by_node.get(n.name) != precision]


def _ranges(setting: Setting) -> Mapping[str, tuple[float, float]] | None:
    return None if setting.table is None else setting.table.ranges
