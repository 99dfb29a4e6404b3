"""A model and a request of each operator and version that ONNX Runtime has a kernel for; no shape is declared.

Each goes through ``explain`` and ``load``, and its answer is that of plain ONNX Runtime.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, helper
from onnx.defs import OpSchema
from onnxruntime.capi import onnxruntime_pybind11_state

import trtnode
from kernel_requests import ALL, ATTRIBUTES, INPUTS, SHAPE, UNLIKE_ITSELF
from plain_runtime import assert_equal, run
from trtnode.engines.precision.bfloat16 import with_float32_kernels
from trtnode.engines.precision.float16 import to_half
from trtnode.engines.precision.rewriting import raised_for

NEWEST = 25
"""The last opset that is tried of kernels without an end."""

PREFERRED = (
    "tensor(float)", "tensor(int64)", "tensor(uint8)", "tensor(bool)", "tensor(string)",
    "seq(tensor(float))", "optional(tensor(float))",
)  # fmt: skip

VALUES = {
    AttributeProto.INT: 1,
    AttributeProto.FLOAT: 1.0,
    AttributeProto.STRING: "a",
    AttributeProto.INTS: [1, 1],
    AttributeProto.FLOATS: [1.0],
    AttributeProto.STRINGS: ["a"],
    AttributeProto.TENSOR: helper.make_tensor("t", onnx.TensorProto.FLOAT, [1], [1.0]),
}
"""Of required attributes that ``ATTRIBUTES`` says nothing of."""

BODIES = {
    "If": "g (bool x0, float[] x1, float[] x2) => (float[] y) { y = If(x0)<then_branch = t () => (float[N] a)"
    " { a = Identity(x1) }, else_branch = e () => (float[N] b) { b = Identity(x2) }> }",
    "Loop": "g (int64 x0, bool x1, float[] x2) => (float[] y, float[] z) { y, z = Loop(x0, x1, x2)<body ="
    " b (int64 i, bool k, float[N] u) => (bool l, float[N] v, float[N] w)"
    " { l = Identity(k) v = Identity(u) w = Identity(u) }> }",
    "Scan": "g (float[] x0, float[] x1) => (float[] y, float[] z) { y, z = Scan(x0, x1)<num_scan_inputs = 1, body ="
    " b (float[2,3] s, float[2,3] e) => (float[2,3] t, float[2,3] u) { t = Add(s, e) u = Identity(t) }> }",
}
"""Operators with subgraphs, as graphs."""


@dataclasses.dataclass(frozen=True)
class KernelCase:
    """An operator at an opset.

    Attributes:
        name: Both, with a hyphen between them.
        model: The node, its inputs and its outputs, of unknown rank.
        feeds: A request that the node answers.
        repeats: False if equal requests have unlike answers.
    """

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    repeats: bool


def kernel_opsets() -> list[tuple[str, int]]:
    """ONNX's own operators with the first and the last opset of each kernel."""
    found = set()
    for kernel in onnxruntime_pybind11_state.get_all_opkernel_def():
        if not kernel.domain and kernel.provider == "CPUExecutionProvider":
            first, last = kernel.version_range
            found |= {(kernel.op_name, opset) for opset in (first, max(first, min(last, NEWEST)))}
    return sorted(one for one in found if onnx.defs.has(*one))


def kernel_cases() -> Iterator[KernelCase]:
    """All of them, by operator and opset."""
    for name, opset in kernel_opsets():
        parameters = INPUTS.get(name, {})
        model = _with_body(name, opset) if name in BODIES else _model(onnx.defs.get_schema(name, opset), opset)
        feeds = {
            v.name: _given(v.type, parameters.get(v.doc_string or v.name, parameters.get(ALL, SHAPE)))
            for v in model.graph.input
        }
        yield KernelCase(f"{name}-{opset}", model, feeds, name not in UNLIKE_ITSELF)


def explain_and_run(case: KernelCase, folder: pathlib.Path) -> None:
    """Explain and run a case. One that ONNX Runtime itself has no kernel for is skipped: some stop below its opset."""
    path = folder / f"{case.name}.onnx"
    onnx.save(case.model, path)
    try:
        expected = run(case.model, case.feeds)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        pytest.skip(str(error))

    report = trtnode.explain(path, engine="openvino")
    answers = list(trtnode.load(path).run(case.feeds).values())

    assert report.native or report.segments
    if case.repeats:
        assert_equal(answers, expected)
    else:
        assert [(a.dtype, a.shape) for a in answers] == [(e.dtype, e.shape) for e in expected]


def run_in_half(case: KernelCase, precision: str) -> None:
    """Run a case as ``convert`` writes it in a precision."""
    try:
        expected = run(case.model, case.feeds)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        pytest.skip(str(error))

    typed = onnx.shape_inference.infer_shapes(to_half(raised_for(case.model, precision), precision))
    answers = run(with_float32_kernels(typed) if precision == "bf16" else typed, case.feeds)

    for answer, right in zip(answers, expected, strict=True):
        if case.repeats and isinstance(right, np.ndarray) and right.dtype.kind == "f":
            largest = np.abs(right[np.isfinite(right)]).max(initial=1)
            np.testing.assert_allclose(answer, right, rtol=2e-2, atol=2e-2 * largest)


def _with_body(name: str, opset: int) -> onnx.ModelProto:
    text = BODIES[name]
    if name == "Scan" and opset < 9:  # which took a batch of sequences, with their lengths in front
        text = text.replace("Scan(x0", "Scan(, x0").replace("[2,3]", "[3]")
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')


def _model(schema: OpSchema, opset: int) -> onnx.ModelProto:
    given = INPUTS.get(schema.name, {})
    inputs = [_value("x", p, schema) if _is_needed(p) or p.name in given else None for p in schema.inputs]
    for number, value in enumerate(inputs):
        if value is not None:
            value.name = f"x{number}"
    names = ["" if value is None else value.name for value in inputs]
    while names and not names[-1]:
        names.pop()
    results = [p for number, p in enumerate(schema.outputs) if not number or _is_needed(p)]
    outputs = [_value(f"y{number}", p, schema) for number, p in enumerate(results)]
    node = helper.make_node(schema.name, names, [v.name for v in outputs], **_attributes(schema))
    graph = helper.make_graph([node], "g", [v for v in inputs if v is not None], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _attributes(schema: OpSchema) -> dict[str, Any]:
    given = ATTRIBUTES.get(schema.name, {})
    needed = {name: VALUES[a.type] for name, a in schema.attributes.items() if a.required and name not in given}
    return needed | {name: value for name, value in given.items() if name in schema.attributes}


def _is_needed(parameter: OpSchema.FormalParameter) -> bool:
    return bool(parameter.option != OpSchema.FormalParameterOption.Optional)


def _value(name: str, parameter: OpSchema.FormalParameter, schema: OpSchema) -> onnx.ValueInfoProto:
    """A value of a type that a parameter allows, whose name becomes its comment."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    kinds = allowed.get(parameter.type_str, [parameter.type_str])
    kind = next((k for k in PREFERRED if k in kinds), sorted(kinds)[0])
    *wrappers, element = kind.rstrip(")").split("(")
    number = onnx.TensorProto.DataType.Value(element.upper())
    value = helper.make_tensor_value_info(name, number, None, parameter.name)
    makers = {"seq": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}
    for wrapper in reversed(wrappers[:-1]):
        inner = onnx.TypeProto()
        inner.CopyFrom(value.type)
        value.type.CopyFrom(makers[wrapper](inner))
    return value


def _given(kind: onnx.TypeProto, asked: Any) -> Any:
    """Values of an input in a request: numbers as asked for, or whole numbers from 0 up in a shape."""
    if kind.HasField("sequence_type"):
        return [_given(kind.sequence_type.elem_type, asked)] * 2
    if kind.HasField("optional_type"):
        return _given(kind.optional_type.elem_type, asked)
    dtype = helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
    if dtype == np.dtype(object):
        return np.full(asked, "a", object)
    return np.asarray(np.arange(np.prod(asked, dtype=int)).reshape(asked) if isinstance(asked, tuple) else asked, dtype)
