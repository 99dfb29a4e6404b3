"""Models that break rules of the ONNX format, each in one way: some that ONNX Runtime runs, some that it refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto
from onnx.helper import make_attribute, make_graph, make_node, make_opsetid, make_tensor_value_info

Edit = Callable[[onnx.ModelProto], None]

EDITS: dict[str, Edit] = {}
"""Edits of ``plain_model``, by name."""

GRAPH = """<ir_version: 8, opset_import: ["": 17]> g (float[2,4] x) => (float[2,4] y)
<float[4,4] w = {0.5,0,0,0, 0,0.25,0,0, 0,0,-1,0, 1,0,0,2}, float[4] b = {0.1,-0.2,0.3,0.4}> {
    [mm] m = MatMul(x, w)
    [add] a = Add(m, b)
    [act] r = LeakyRelu <alpha = 0.5> (a)
    [c] two = Constant <value = float two {2.0}> ()
    [mul] y = Mul(r, two)
}"""


def odd_model(name: str) -> onnx.ModelProto:
    """Return the plain model with one edit."""
    model = onnx.parser.parse_model(GRAPH)
    EDITS[name](model)
    return model


def _edit(function: Edit) -> Edit:
    EDITS[function.__name__] = function
    return function


def _tensor(name: str, value: object, dtype: type = np.float32) -> TensorProto:
    return onnx.numpy_helper.from_array(np.array(value, dtype), name)


def _constant(output: str, value: object) -> onnx.NodeProto:
    return make_node("Constant", [], [output], value=_tensor("", value))


def _floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return make_tensor_value_info(name, TensorProto.FLOAT, shape)


@_edit
def plain(_: onnx.ModelProto) -> None: ...


@_edit
def constants_with_the_same_output(m: onnx.ModelProto) -> None:
    m.graph.node.insert(0, _constant("two", 3))


@_edit
def a_later_constant_with_the_same_output(m: onnx.ModelProto) -> None:
    m.graph.node.extend([_constant("two", 3), make_node("Constant", [], ["two"], value_float=5.0)])


@_edit
def constants_of_different_shapes_with_the_same_output(m: onnx.ModelProto) -> None:
    m.graph.node.insert(0, _constant("two", [[3], [4]]))


@_edit
def a_constant_named_like_an_initializer(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(_tensor("two", 7))


@_edit
def a_constant_named_like_an_input(m: onnx.ModelProto) -> None:
    m.graph.node.append(_constant("x", np.ones((2, 4))))


@_edit
def a_number_named_like_an_input(m: onnx.ModelProto) -> None:
    m.graph.input.append(_floats("two"))
    m.graph.node[3].CopyFrom(make_node("Constant", [], ["two"], value_float=3.0))


@_edit
def a_constant_named_like_another_node_s_output(m: onnx.ModelProto) -> None:
    m.graph.node.append(_constant("r", np.ones((2, 4))))


@_edit
def a_constant_without_output(m: onnx.ModelProto) -> None:
    m.graph.node.append(_constant("", 1))


@_edit
def a_constant_with_an_input(m: onnx.ModelProto) -> None:
    m.graph.node[3].input.append("nowhere")


@_edit
def a_constant_with_two_values(m: onnx.ModelProto) -> None:
    m.graph.node[3].attribute.insert(0, make_attribute("value_float", 5.0))


@_edit
def a_constant_with_a_value_of_another_name(m: onnx.ModelProto) -> None:
    m.graph.node[3].attribute[0].name = "something"


@_edit
def nodes_with_the_same_output(m: onnx.ModelProto) -> None:
    m.graph.node.insert(2, make_node("Relu", ["m"], ["a"]))


@_edit
def nodes_with_the_same_name(m: onnx.ModelProto) -> None:
    for node in m.graph.node:
        node.name = "same"


@_edit
def nodes_without_names(m: onnx.ModelProto) -> None:
    for node in m.graph.node:
        node.name = ""


@_edit
def names_that_are_no_utf_8(m: onnx.ModelProto) -> None:
    m.ParseFromString(m.SerializeToString().replace(b"\x01m", b"\x01\xc4").replace(b"\x02mm", b"\x02\xd6\xd0"))


@_edit
def nodes_in_reverse_order(m: onnx.ModelProto) -> None:
    nodes = [copy.deepcopy(node) for node in reversed(m.graph.node)]
    del m.graph.node[:]
    m.graph.node.extend(nodes)


@_edit
def nodes_in_a_circle(m: onnx.ModelProto) -> None:
    m.graph.node[0].input[0] = "r"


@_edit
def a_node_that_reads_nothing(m: onnx.ModelProto) -> None:
    m.graph.node[1].input[1] = "nowhere"


@_edit
def a_dead_node_of_an_unknown_operator(m: onnx.ModelProto) -> None:
    m.graph.node.append(make_node("NoSuchOperator", ["r"], ["z"]))


@_edit
def an_attribute_of_another_type(m: onnx.ModelProto) -> None:
    m.graph.node[2].attribute[0].CopyFrom(make_attribute("alpha", 1))


@_edit
def an_attribute_without_type(m: onnx.ModelProto) -> None:
    m.graph.node[2].attribute[0].ClearField("type")


@_edit
def an_attribute_of_a_function_outside_of_one(m: onnx.ModelProto) -> None:
    m.graph.node[2].attribute[0].ref_attr_name = "slope"


@_edit
def initializers_with_the_same_name(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(_tensor("b", [1, 2, 3, 4]))


@_edit
def initializers_of_different_types_with_the_same_name(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(_tensor("b", [1, 2, 3, 4], np.float64))


@_edit
def an_initializer_without_name(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(_tensor("", [1]))


@_edit
def an_initializer_that_nothing_reads(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(_tensor("unread", [1]))


@_edit
def missing_data_that_nothing_reads(m: onnx.ModelProto) -> None:
    tensor = TensorProto(name="unread", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="nowhere.bin")
    m.graph.initializer.append(tensor)


@_edit
def elements_of_another_type(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].int64_data.extend([9, 9, 9, 9])


@_edit
def elements_of_another_type_alone(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(TensorProto(name="b", dims=[4], data_type=1, int32_data=[1, 2, 3, 4]))


@_edit
def an_initializer_cut_short(m: onnx.ModelProto) -> None:
    m.graph.initializer[1].CopyFrom(TensorProto(name="b", dims=[4], data_type=1, float_data=[1, 2]))


@_edit
def a_sparse_initializer_beside_a_dense_one(m: onnx.ModelProto) -> None:
    sparse = onnx.helper.make_sparse_tensor(_tensor("b", [5]), _tensor("i", [1], np.int64), [4])
    m.graph.sparse_initializer.append(sparse)


@_edit
def an_output_listed_twice(m: onnx.ModelProto) -> None:
    m.graph.output.append(m.graph.output[0])


@_edit
def an_input_listed_twice(m: onnx.ModelProto) -> None:
    m.graph.input.append(m.graph.input[0])


@_edit
def an_input_that_nothing_reads(m: onnx.ModelProto) -> None:
    m.graph.input.append(_floats("unread", 1))


@_edit
def outputs_that_are_input_initializer_and_constant(m: onnx.ModelProto) -> None:
    m.graph.output.extend([_floats("x", 2, 4), _floats("w", 4, 4), _floats("two")])


@_edit
def an_output_of_an_initializer_s_wrong_shape(m: onnx.ModelProto) -> None:
    m.graph.output.append(_floats("w", 2, 2))


@_edit
def an_output_that_nothing_makes(m: onnx.ModelProto) -> None:
    m.graph.output.append(_floats("nowhere", 1))


@_edit
def an_output_of_no_type(m: onnx.ModelProto) -> None:
    m.graph.output[0].ClearField("type")


@_edit
def an_output_of_another_shape(m: onnx.ModelProto) -> None:
    m.graph.output[0].CopyFrom(_floats("y", 3, 5))


@_edit
def an_output_of_another_rank(m: onnx.ModelProto) -> None:
    m.graph.output[0].CopyFrom(_floats("y", 8))


@_edit
def an_output_of_another_type(m: onnx.ModelProto) -> None:
    m.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


@_edit
def an_output_of_one_batch_behind_an_input_of_any(m: onnx.ModelProto) -> None:
    m.graph.input[0].CopyFrom(_floats("x", "N", 4))
    m.graph.output[0].CopyFrom(_floats("y", 1, 4))


@_edit
def an_input_of_no_shape(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.ClearField("shape")


@_edit
def an_input_of_negative_size(m: onnx.ModelProto) -> None:
    m.graph.input[0].CopyFrom(_floats("x", -7, 4))


@_edit
def an_input_of_one_symbol_for_two_sizes(m: onnx.ModelProto) -> None:
    m.graph.input[0].CopyFrom(_floats("x", "N", "N"))


@_edit
def value_info_of_another_shape(m: onnx.ModelProto) -> None:
    m.graph.value_info.append(_floats("m", 9, 9))


@_edit
def value_info_of_another_type(m: onnx.ModelProto) -> None:
    m.graph.value_info.append(make_tensor_value_info("m", TensorProto.INT64, [2, 4]))


@_edit
def value_info_that_contradicts_itself(m: onnx.ModelProto) -> None:
    m.graph.value_info.extend([_floats("m", 2, 4), _floats("m", 7, 4), _floats("", 1), _floats("nobody", 1)])
    m.graph.value_info.extend([onnx.ValueInfoProto(name="a"), _floats("x", 3, 4), _floats("w", 9)])


@_edit
def no_opset(m: onnx.ModelProto) -> None:
    del m.opset_import[:]


@_edit
def an_opset_of_another_domain_alone(m: onnx.ModelProto) -> None:
    m.opset_import[0].domain = "com.microsoft"


@_edit
def two_opsets(m: onnx.ModelProto) -> None:
    m.opset_import.extend([make_opsetid("", 12), make_opsetid("ai.onnx", 11), make_opsetid("who.knows", 3)])
    m.graph.node[2].CopyFrom(make_node("Softmax", ["a"], ["r"]))


@_edit
def an_operator_of_a_domain_that_is_not_imported(m: onnx.ModelProto) -> None:
    m.graph.node[2].CopyFrom(make_node("Gelu", ["a"], ["r"], domain="com.microsoft"))


@_edit
def ir_version_0(m: onnx.ModelProto) -> None:
    m.ir_version = 0


@_edit
def no_ir_version(m: onnx.ModelProto) -> None:
    m.ClearField("ir_version")


@_edit
def ir_version_3_with_initializers_that_are_no_inputs(m: onnx.ModelProto) -> None:
    m.ir_version = 3


@_edit
def properties_twice_and_without_name(m: onnx.ModelProto) -> None:
    m.metadata_props.extend([onnx.StringStringEntryProto(key=key, value="v") for key in ("k", "k", "", "trtnode.x")])


@_edit
def empty_optional_inputs_and_outputs(m: onnx.ModelProto) -> None:
    m.graph.node[2].CopyFrom(make_node("Dropout", ["a", "", ""], ["r", ""]))


@_edit
def an_empty_input_that_is_needed(m: onnx.ModelProto) -> None:
    m.graph.node[2].input[0] = ""


@_edit
def a_subgraph_that_shadows_an_initializer(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(_tensor("yes", True, np.bool_))
    branches = {
        name: make_graph([make_node("Add", ["a", "b"], [name])], name, [], [_floats(name, 2, 4)], held)
        for name, held in (("then_branch", [_tensor("b", [9, 9, 9, 9])]), ("else_branch", []))
    }
    m.graph.node[2].CopyFrom(make_node("If", ["yes"], ["r"], **branches))


@_edit
def a_function_named_like_an_operator(m: onnx.ModelProto) -> None:
    body = [make_node("Neg", ["p"], ["q"])]
    m.functions.append(onnx.helper.make_function("", "Mul", ["p", "o"], ["q"], body, [make_opsetid("", 17)]))
