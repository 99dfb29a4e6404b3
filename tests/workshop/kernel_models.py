"""A model of each operator and version that ONNX Runtime has a kernel for, whose shapes are not declared."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import AttributeProto, helper
from onnx.defs import OpSchema
from onnxruntime.capi import onnxruntime_pybind11_state

NEWEST = 25
"""The newest opset that is tried."""

PREFERRED = ("tensor(float)", "tensor(int64)", "tensor(bool)", "tensor(string)")

VALUES = {
    AttributeProto.INT: 1,
    AttributeProto.FLOAT: 1.0,
    AttributeProto.STRING: "a",
    AttributeProto.INTS: [1, 1],
    AttributeProto.FLOATS: [1.0],
    AttributeProto.STRINGS: ["a"],
    AttributeProto.TENSOR: helper.make_tensor("t", onnx.TensorProto.FLOAT, [1], [1.0]),
}
"""Of required attributes. Those that are subgraphs are left out, with their operators."""


def kernel_opsets() -> list[tuple[str, int]]:
    """ONNX's own operators with the first and the last opset of each kernel."""
    found = set()
    for kernel in onnxruntime_pybind11_state.get_all_opkernel_def():
        if not kernel.domain and kernel.provider == "CPUExecutionProvider":
            first, last = kernel.version_range
            found |= {(kernel.op_name, opset) for opset in (first, min(last, NEWEST))}
    return sorted(one for one in found if onnx.defs.has(*one))


def kernel_models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Models of one node, with inputs and outputs of unknown rank, by operator and opset."""
    for name, opset in kernel_opsets():
        if (model := _model(onnx.defs.get_schema(name, opset), opset)) is not None:
            yield f"{name}-{opset}", model


def _model(schema: OpSchema, opset: int) -> onnx.ModelProto | None:
    required = {n: a for n, a in schema.attributes.items() if a.required}
    if any(a.type not in VALUES for a in required.values()):
        return None
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    inputs = [_value(f"x{i}", p.type_str, allowed) for i, p in enumerate(_needed(schema.inputs))]
    outputs = [_value(f"y{i}", p.type_str, allowed) for i, p in enumerate(_needed(schema.outputs))]
    attributes = {n: VALUES[a.type] for n, a in required.items()}
    node = helper.make_node(schema.name, [v.name for v in inputs], [v.name for v in outputs], **attributes)
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _needed(parameters: list[OpSchema.FormalParameter]) -> list[OpSchema.FormalParameter]:
    return [p for p in parameters if p.option != OpSchema.FormalParameterOption.Optional]


def _value(name: str, type_str: str, allowed: dict[str, list[str]]) -> onnx.ValueInfoProto:
    kinds = allowed.get(type_str, [type_str])
    kind = next((k for k in PREFERRED if k in kinds), sorted(kinds)[0])
    element = (
        kind.removeprefix("seq(").removeprefix("optional(").removeprefix("seq(").removeprefix("tensor(").rstrip(")")
    )
    number = onnx.TensorProto.DataType.Value(element.upper())
    value = helper.make_tensor_value_info(name, number, None)
    for wrapper in reversed(kind.split("(")[:-2]):
        inner = onnx.TypeProto()
        inner.CopyFrom(value.type)
        make = {"seq": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}[wrapper]
        value.type.CopyFrom(make(inner))
    return value
