"""Sizes that a file declares are compared with those that it holds."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from benchmarks.attacks import bombs
from model_texts import parse
from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.model.loading import load_model

KINDS = [kind for kind in ir.DataType if kind is not ir.DataType.UNDEFINED]


def save(folder: pathlib.Path, model: onnx.ModelProto) -> pathlib.Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def with_initializer(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = bombs.declared_initializer(1)
    tensor.name = "w"
    model.graph.initializer[0].CopyFrom(tensor)
    return model


@pytest.mark.parametrize(
    ("bomb", "problem"),
    [
        ("initializer", r"initializer 'w' declares the shape \[1099511627776\], which takes 1099511627776 values"),
        ("initializer-beyond-64-bits", "takes 18446744073709551616 values, but holds 0"),
        ("initializer-of-2-to-62", "takes 4611686018427387904 values, but holds 0"),
        ("empty-initializer", "no elements, but the shape"),
        ("constant-in-a-subgraph", "attribute 'value' of node 'Constant' declares the shape"),
        ("input", "'x' has the shape .* no request or response can carry it"),
        (
            "input-without-elements",
            r"'x' has the shape \[0, 4611686018427387904, .* no request or response can carry it",
        ),
        ("input-of-many-dimensions", "'x' has 100000 dimensions; the most are 64"),
        ("initializer-of-many-dimensions", "initializer 'w' has 100000 dimensions; the most are 64"),
        ("many-inputs", "the model has 100001 inputs; the most are 10000"),
        ("sparse", "sparse tensor 'w' .* is too large to make dense"),
        ("declared-strings", "'x' has the shape .* no request or response can carry it"),
        ("sparse-strings", "sparse tensor 'w' .* is too large to make dense"),
        ("tower", "its functions expand to more than 250000 nodes, most of them by calls of 'f0'"),
        ("recursion", "a function calls itself: 'f0' > 'f1' > 'f0'"),
    ],
)
def test_a_declaration_that_the_file_does_not_back_is_refused(bomb: str, problem: str, tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, bombs.BOMBS[bomb]())

    with pytest.raises(ModelFileError, match=problem) as caught:
        load_model(path)

    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (5,), (0, 3)], ids=str)
def test_each_type_is_read_in_both_forms_of_its_data(
    kind: ir.DataType, shape: tuple[int, ...], tmp_path: pathlib.Path
) -> None:
    if kind is ir.DataType.STRING:
        forms = [onnx.helper.make_tensor("w", kind, shape, ["a"] * int(np.prod(shape)))]
    else:
        raw = ir.serde.serialize_tensor(ir.Tensor(np.ones(shape, kind.numpy()), dtype=kind))
        forms = [raw, onnx.helper.make_tensor("w", kind, shape, np.ones(shape, kind.numpy()).reshape(-1))]

    for tensor in forms:
        model = load_model(save(tmp_path, with_initializer(tensor)))

        assert model.graph.initializers["w"].shape == ir.Shape(shape)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0"], ids=["short", "long"])
def test_data_of_another_length_is_refused(change: Callable[[bytes], bytes], tmp_path: pathlib.Path) -> None:
    tensor = onnx.numpy_helper.from_array(np.ones(3, np.float32))
    tensor.raw_data = change(tensor.raw_data)

    with pytest.raises(ModelFileError, match=r"takes 12 bytes, but holds 1[13]"):
        load_model(save(tmp_path, with_initializer(tensor)))


def test_a_negative_dimension_of_a_tensor_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ModelFileError, match="negative dimension"):
        load_model(save(tmp_path, bombs.declared_initializer(-1)))


def test_functions_in_proportion_are_read(tmp_path: pathlib.Path) -> None:
    model = bombs.tower_of_functions()
    model.graph.node[0].op_type = "f30"

    assert len(load_model(save(tmp_path, model)).functions) == bombs.TOWERS


def test_nodes_of_a_function_that_form_a_cycle_are_refused(tmp_path: pathlib.Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "f": 1]> g (float[1] x) => (float[M] y) { y = f.loop(x) }
        <domain: "f", opset_import: ["": 18]> loop (a) => (c) { b = Add(a, c) c = Relu(b) }"""
    path = save(tmp_path, parse(text))

    with pytest.raises(ModelFileError, match="nodes of function 'loop' form a cycle"):
        load_model(path)
