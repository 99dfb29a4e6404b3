"""Labels ONNX nodes that TensorRT's parser takes, by tables, without TensorRT.

Nodes are labelled twice. Tables tell what TensorRT's parser takes, also on machines without it. Where it is installed,
the parser is asked as well, and its answer wins (``parser``).
The tables alone refuse what the parser misreads: foreign domains, float64 (read as float32), and uint8 quantization
(read as int8), unless a rewrite makes it exact or the user allows the loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator

import onnx
import onnx_ir as ir

from trtnode.engines.tensorrt.labelling.operator_rules import OPERATOR_RULES, quantized_dtype
from trtnode.engines.tensorrt.labelling.operators import (
    ABSENT_INPUTS,
    CONSTANT_INPUTS,
    DATA_DEPENDENT,
    FIRST_OUTPUT_ALONE,
    FLOATS,
    FORBIDDEN_ATTRIBUTES,
    MAX_RANK,
    OPSETS,
    PLAIN,
    QUANTIZED,
    SIZING_INPUTS,
    UNDILATED,
)
from trtnode.engines.tensorrt.labelling.tables import TENSORRT, ParserTable
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.qdq import DEQUANTIZE, QUANTIZE, is_integer_bias
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.opset_versions import extends_operator, means_the_same
from trtnode.partitioner.model.values import GIVEN_SIZES, dimensions, input_of, named_values, size_inputs

QUANTIZERS = (QUANTIZE, DEQUANTIZE)

TYPED_BY_RESULT = frozenset(
    "BlackmanWindow ConstantOfShape EyeLike HammingWindow HannWindow If RandomNormal RandomNormalLike RandomUniform"
    " RandomUniformLike".split()
)
"""Operators whose element types in the table are those of their result, which no input has to share."""


def label(node: Node, allow: Collection[Allowance] = (), table: ParserTable = TENSORRT) -> Verdict:
    """Return whether a library takes this node and computes what ONNX means, or as the user allows.

    Args:
        node: Of a cleaned graph.
        allow: The user's allowances.
        table: That of the library.
    """
    if node.op_type not in table.dtypes or not onnx.defs.has(node.op_type, node.opset, ""):
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"{table.title}'s parser has no {node.op_type}.")
    if node.op_type in table.lacking:
        detail = f"{table.title} builds no {node.op_type}: {table.lacking[node.op_type]}."
        return Verdict(ReasonCode.UNSUPPORTED_OP, detail)
    if node.op_type in DATA_DEPENDENT and Allowance.DATA_DEPENDENT not in allow:
        detail = (
            f"Values decide how much {node.op_type} computes, which is slow in a TensorRT engine. "
            f"Allow it with --allow {Allowance.DATA_DEPENDENT}."
        )
        return Verdict(ReasonCode.DATA_DEPENDENT, detail)
    for rule in _rules(table, allow):
        verdict = rule(node)
        if not verdict.supported:
            return verdict
    return SUPPORTED


def _rules(table: ParserTable, allow: Collection[Allowance]) -> tuple[Callable[[Node], Verdict], ...]:
    return (
        _check_opset,
        _check_tensors,
        functools.partial(_check_dtypes, table=table, allow=allow),
        functools.partial(_check_shapes, table=table),
        _check_inputs,
        functools.partial(_check_attributes, table=table),
        functools.partial(_check_operator, table=table),
    )


def _check_opset(node: Node) -> Verdict:
    """Refuse operators with another meaning in all of the parser's opsets: a segment is stamped with one of them."""
    known = node.opset >= OPSETS[0] or extends_operator(node.op_type, OPSETS[0], node.opset)
    if known and means_the_same(node.op, node.opset, OPSETS[-1]):
        return SUPPORTED
    return Verdict(
        ReasonCode.UNSUPPORTED_OP,
        f"{node.op_type} of opset {node.opset} is another than in opsets {OPSETS[0]} to {OPSETS[-1]}, "
        "which TensorRT's parser knows.",
    )


def _check_tensors(node: Node) -> Verdict:
    other = next((v for v in named_values(node.op) if not isinstance(v.type, ir.TensorType | None)), None)
    if other is None:
        return SUPPORTED
    kind = type(other.type).__name__.removesuffix("Type").lower()
    return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"{other.name!r} is a {kind}, and TensorRT has tensors alone.")


def _check_dtypes(node: Node, table: ParserTable, allow: Collection[Allowance]) -> Verdict:
    computed = set(_computed(node))
    for value in named_values(node.op):
        dtype = _narrowed(value.dtype, allow)
        allowed = table.dtypes[node.op_type] if value in computed else PLAIN
        if is_integer_bias(node.op):
            allowed = FLOATS | {ir.DataType.INT32}
        elif node.op_type in QUANTIZERS:
            allowed = QUANTIZED | {ir.DataType.UINT8} if value.dtype == quantized_dtype(node) else FLOATS
        if node.op_type in ("Cast", "Shape") and not _casts_inside(node):
            allowed |= {ir.DataType.UINT8}
        if dtype not in allowed:
            return Verdict(ReasonCode.UNSUPPORTED_DTYPE, _dtype_detail(node, value, table.title))
    return SUPPORTED


def _narrowed(dtype: ir.DataType | None, allow: Collection[Allowance]) -> ir.DataType | None:
    return ir.DataType.FLOAT if dtype == ir.DataType.DOUBLE and Allowance.NARROW_DOUBLE in allow else dtype


def _dtype_detail(node: Node, value: ir.Value, title: str) -> str:
    name = value.dtype.name.lower() if value.dtype else "of an unknown type"
    if value.dtype == ir.DataType.DOUBLE:
        return (
            f"{value.name!r} is double, which TensorRT would compute in float32. "
            f"Allow it with --allow {Allowance.NARROW_DOUBLE}."
        )
    if value.dtype in QUANTIZED or value.dtype == ir.DataType.UINT8:
        return f"{value.name!r} is {name}, which TensorRT computes only between QuantizeLinear and DequantizeLinear."
    if value.dtype in PLAIN:
        return f"{value.name!r} is {name}, and {title} has no {node.op_type} for it."
    return f"{value.name!r} is {name}, which TensorRT does not have."


def _computed(node: Node) -> Iterator[ir.Value]:
    """Yield the values whose element type is in the table: those of the operator's main type variable."""
    schema = onnx.defs.get_schema(node.op_type, node.opset, "")
    variables = {c.type_param_str for c in schema.type_constraints} & {p.type_str for p in schema.inputs}
    by_result = node.op_type in TYPED_BY_RESULT or schema.outputs[0].type_str in variables
    main = (schema.outputs if by_result else schema.inputs)[0].type_str
    for values, ports in ((node.op.inputs, schema.inputs), (node.op.outputs, schema.outputs)):
        for index, value in enumerate(values):
            if value is not None and value.name and ports[min(index, len(ports) - 1)].type_str == main:
                yield value


def _casts_inside(node: Node) -> bool:
    """Return whether a node reads uint8 from inside an engine, which has uint8 at its inputs and outputs alone."""
    source = node.op.inputs[0]
    producer = None if source is None or source.dtype != ir.DataType.UINT8 else source.producer()
    return producer is not None and producer.op_type in ("Cast", QUANTIZE)


def _check_shapes(node: Node, table: ParserTable) -> Verdict:
    for value in named_values(node.op):
        shape = dimensions(value)
        if shape is not None and len(shape) > MAX_RANK:
            detail = f"{value.name!r} has {len(shape)} dimensions; TensorRT has at most {MAX_RANK}."
            return Verdict(ReasonCode.UNSUPPORTED_RANK, detail)
        if shape is not None and 0 in shape and value.const_value is None and node.op_type not in table.taking_empty:
            return Verdict(ReasonCode.UNSUPPORTED_RANK, f"{value.name!r} has no elements.")
    for index, ranks in table.ranks.get(node.op_type, {}).items():
        given = input_of(node.op, index)
        shape = None if given is None else dimensions(given)
        if given is not None and shape is not None and len(shape) not in ranks:
            wanted = " or ".join(map(str, ranks))
            detail = f"{given.name!r} has rank {len(shape)}; {table.title}'s {node.op_type} takes rank {wanted}."
            return Verdict(ReasonCode.UNSUPPORTED_RANK, detail)
    return SUPPORTED


def _check_inputs(node: Node) -> Verdict:
    for index in ABSENT_INPUTS.get(node.op_type, ()):
        value = input_of(node.op, index)
        if value is not None:
            detail = f"TensorRT's {node.op_type} has no input {index} ({value.name!r})."
            return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)
    for index in CONSTANT_INPUTS.get(node.op_type, ()):
        value = input_of(node.op, index)
        if value is not None and value.const_value is None:
            detail = f"Input {index} ({value.name!r}) of {node.op_type} must be a constant."
            return Verdict(ReasonCode.UNSUPPORTED_INPUT, detail)
    for index in SIZING_INPUTS.get(node.op_type, ()):
        value = input_of(node.op, index)
        if value is not None:
            verdict = _check_size(value, f"Input {index} ({value.name!r}) of {node.op_type} must")
            if not verdict.supported:
                return verdict
    return SUPPORTED


def _check_size(value: ir.Value, subject: str) -> Verdict:
    """Refuse a value that sizes a result, if requests decide it and the user gives no bounds."""
    inputs = size_inputs(value)
    if inputs is None:
        return Verdict(ReasonCode.DYNAMIC_SHAPE, f"{subject} be a constant or come from Shape.")
    unbounded = [v for v in inputs if not v.meta.get(GIVEN_SIZES)]
    if not unbounded:
        return SUPPORTED
    detail = f"{subject} be a constant or come from Shape"
    if all(GIVEN_SIZES in v.meta for v in unbounded):
        detail += f", or the bounds of its values must be given: --shapes {unbounded[0].name}:=MIN,OPT,MAX"
    return Verdict(ReasonCode.UNSUPPORTED_INPUT, f"{detail}.")


def _check_attributes(node: Node, table: ParserTable) -> Verdict:
    for name, allowed in table.attributes.get(node.op_type, {}).items():
        if name in node.op.attributes and (given := _attribute(node, name)) not in allowed:
            detail = f"{table.title}'s {node.op_type} takes {name} {_listed(allowed)}, not {given}."
            return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, detail)
    for name in FORBIDDEN_ATTRIBUTES.get(node.op_type, ()):
        if name in node.op.attributes:
            return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, f"TensorRT ignores {name} of {node.op_type}.")
    if node.op_type in UNDILATED and any(d != 1 for d in node.op.attributes.get_ints("dilations", ())):
        return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, f"TensorRT's {node.op_type} has no dilations.")
    if node.op_type in FIRST_OUTPUT_ALONE and any(v.name for v in node.op.outputs[1:]):
        return Verdict(ReasonCode.UNSUPPORTED_ATTRIBUTE, f"TensorRT's {node.op_type} has its first output alone.")
    return SUPPORTED


def _check_operator(node: Node, table: ParserTable) -> Verdict:
    for rules in (OPERATOR_RULES, table.rules):
        refusal = rules[node.op_type](node) if node.op_type in rules else None
        if refusal:
            return refusal
    return SUPPORTED


def _attribute(node: Node, name: str) -> int | float | str:
    value: int | float | str = node.op.attributes[name].value
    return value


def _listed(allowed: tuple[int | float | str, ...]) -> str:
    return " or ".join(map(str, allowed))
