"""Small files that ask for more memory or time than any machine has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper

HEADER = '<ir_version: 8, opset_import: ["": 18]>'
TOWERS = 40
"""Doublings: 2**40 of anything."""


def declared_initializer(*dims: int) -> onnx.ModelProto:
    """A model with an initializer that has dimensions and no data."""
    model = onnx.parser.parse_model(f"{HEADER} g (float[1] x) => (float[M] y) {{ y = Add(x, w) }}")
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims))
    return model


def declared_constant() -> onnx.ModelProto:
    """The same as the attribute of a node in a subgraph."""
    model = onnx.parser.parse_model(
        f"{HEADER} g (bool c, float[1] x) => (float[M] y) {{ y = If(c) <"
        "then_branch = t () => (float[M] a) { a = Constant<value = float[1] {1}>() },"
        "else_branch = e () => (float[M] b) { b = Identity(x) }> }"
    )
    tensor = model.graph.node[0].attribute[0].g.node[0].attribute[0].t
    tensor.CopyFrom(TensorProto(data_type=TensorProto.FLOAT, dims=[2**40]))
    return model


def declared_input() -> onnx.ModelProto:
    """A model whose input no request can carry."""
    return onnx.parser.parse_model(f"{HEADER} g (float[4611686018427387904] x) => (float[M] y) {{ y = Relu(x) }}")


def sparse_initializer() -> onnx.ModelProto:
    """A model with one element, of 2**40, set."""
    model = onnx.parser.parse_model(f"{HEADER} g (float[1] x) => (float[M] y) {{ y = Add(x, w) }}")
    values = onnx.numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = onnx.numpy_helper.from_array(np.zeros(1, np.int64), "i")
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[2**40]))
    return model


def declared_strings() -> onnx.ModelProto:
    """A model whose input is 2**27 strings, each of which takes more than its text."""
    return onnx.parser.parse_model(f"{HEADER} g (string[134217728] x) => (string[M] y) {{ y = Identity(x) }}")


def sparse_strings() -> onnx.ModelProto:
    """A model with one string, of 2**26, set."""
    model = onnx.parser.parse_model(f"{HEADER} g (float[1] x) => (string[M] y) {{ y = Identity(w) }}")
    values = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"])
    indices = onnx.numpy_helper.from_array(np.zeros(1, np.int64), "i")
    model.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[2**26]))
    return model


def doubling_texts() -> onnx.ModelProto:
    """A model that appends a text to itself, 40 times."""
    nodes = "".join(f"s{i + 1} = StringConcat(s{i}, s{i})" for i in range(TOWERS))
    text = f'g (float[1] x) => (string[M] s{TOWERS}) <string[1] s0 = {{"ab"}}> {{ {nodes} }}'
    return onnx.parser.parse_model(f"{HEADER.replace('18', '20')} {text}")


def doubling_concats() -> onnx.ModelProto:
    """A model that appends a shape to itself, 40 times."""
    nodes = "".join(f"s{i + 1} = Concat<axis = 0>(s{i}, s{i})" for i in range(TOWERS))
    text = f"g (float[N] x) => (float[M] y) <int64[2] s0 = {{1, 1}}> {{ {nodes} y = Reshape(x, s{TOWERS}) }}"
    return onnx.parser.parse_model(f"{HEADER} {text}")


def doubling_concats_of_a_shape() -> onnx.ModelProto:
    """The same for the shape of the input, which isn't a constant."""
    nodes = "".join(f"s{i + 1} = Concat<axis = 0>(s{i}, s{i})" for i in range(20))
    return onnx.parser.parse_model(f"{HEADER} g (float[N, 3] x) => (int64[M] s20) {{ s0 = Shape(x) {nodes} }}")


def tower_of_functions() -> onnx.ModelProto:
    """A model of functions each of which calls the next one twice."""
    model = onnx.parser.parse_model(f"{HEADER} g (float[N] x) => (float[N] y) {{ y = Relu(x) }}")
    model.opset_import.append(helper.make_opsetid("f", 1))
    model.graph.node[0].CopyFrom(helper.make_node("f0", ["x"], ["y"], domain="f"))
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    for level in range(TOWERS):
        last = level + 1 == TOWERS
        kind, domain = ("Relu", "") if last else (f"f{level + 1}", "f")
        calls = [helper.make_node(kind, [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
        model.functions.append(helper.make_function("f", f"f{level}", ["a"], ["c"], calls, imports))
    return model


def recursive_function() -> onnx.ModelProto:
    """A model of two functions that call each other."""
    model = tower_of_functions()
    del model.functions[2:]
    for call in model.functions[1].node:
        call.op_type = "f0"
    return model


def _folded(nodes: str) -> Callable[[], onnx.ModelProto]:
    return lambda: onnx.parser.parse_model(f"{HEADER} g (float[1] x) => (float[M] y) {{ {nodes} y = Add(x, w) }}")


SHAPE = "s = Constant<value = int64[1] {1099511627776}>()"


def declared_tensor(*dims: int) -> onnx.ModelProto:
    """A model whose input has these dimensions."""
    model = onnx.parser.parse_model(f"{HEADER} g (float[1] x) => (float[M] y) {{ y = Relu(x) }}")
    shape = model.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=size) for size in dims)
    return model


def many_inputs() -> onnx.ModelProto:
    """A model of 100,000 inputs."""
    model = declared_tensor(1)
    model.graph.input.extend(helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [1]) for n in range(100_000))
    return model


BOMBS: dict[str, Callable[[], onnx.ModelProto]] = {
    "initializer": lambda: declared_initializer(2**40),
    "initializer-beyond-64-bits": lambda: declared_initializer(2**31, 2**31, 4),
    "initializer-of-2-to-62": lambda: declared_initializer(2**62),
    "empty-initializer": lambda: declared_initializer(0, 2**62, 2**62),
    "constant-in-a-subgraph": declared_constant,
    "input": declared_input,
    "input-without-elements": lambda: declared_tensor(0, 2**62, 2**62),
    "input-of-many-dimensions": lambda: declared_tensor(*[2**62] * 100_000),
    "initializer-of-many-dimensions": lambda: declared_initializer(*[2**62] * 100_000),
    "many-inputs": many_inputs,
    "sparse": sparse_initializer,
    "declared-strings": declared_strings,
    "sparse-strings": sparse_strings,
    "texts": doubling_texts,
    "concats": doubling_concats,
    "tower": tower_of_functions,
    "recursion": recursive_function,
    "constant-of-shape": _folded(f"{SHAPE} w = ConstantOfShape(s)"),
    "expand": _folded(f"{SHAPE} c = Constant<value_float = 1.0>() w = Expand(c, s)"),
    "tile": _folded(f"{SHAPE} c = Constant<value_floats = [1.0]>() w = Tile(c, s)"),
    "range": _folded(
        "a = Constant<value_float = 0.0>() b = Constant<value_float = 1099511627776.0>()"
        "d = Constant<value_float = 1.0>() w = Range(a, b, d)"
    ),
    "pad": _folded(
        "c = Constant<value_floats = [1.0]>() p = Constant<value = int64[2] {0, 1099511627776}>() w = Pad(c, p)"
    ),
    "products": _folded(
        "n = Constant<value = int64[1] {1024}>() a = ConstantOfShape(n)"
        "r = Constant<value = int64[3] {1024, 1, 1}>() s = Constant<value = int64[2] {1024, 1}>()"
        "b = Reshape(a, s) c = Reshape(a, r) d = Add(a, b) e = Add(c, d) f = Unsqueeze(e, u)"
        "u = Constant<value = int64[1] {3}>() g = Concat<axis = 3>(f, f, f, f) w = ReduceSum(g)"
    ),
    "random": _folded("w = RandomNormal<shape = [1099511627776]>()"),
}
"""Models that must be refused, by name."""
