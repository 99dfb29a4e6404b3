"""Types of many values are converted once, and each value can still be given another one."""

from __future__ import annotations

import pathlib

import onnx
import onnx_ir as ir
import pytest

from model_texts import parse
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.model.value_types import TypeReader, TypeWriter
from trtnode.partitioner.model.values import serialize_value

TEXT = """<ir_version: 10, opset_import: ["": 21]> g (float[N, 3] x) => (float[N, 3] y)
    <float[N, 3] a, float[N, 3] b, int64[2] s>
{ a = Relu(x) b = Abs(a) s = Shape(b) y = Neg(b) }"""


def test_equal_types_are_read_once_and_can_be_changed_apart() -> None:
    types = TypeReader()
    infos = parse(TEXT).graph.value_info
    a, b, s = (ir.Value(name=info.name) for info in infos)

    for value, info in zip((a, b, s), infos, strict=True):
        types.declare(value, info)
    b.dtype = ir.DataType.DOUBLE

    assert a.shape is b.shape
    assert a.shape is not None
    assert a.shape.frozen
    assert (a.dtype, s.dtype, s.shape) == (ir.DataType.FLOAT, ir.DataType.INT64, (2,))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(ir.TensorType(ir.DataType.FLOAT), id="tensor"),
        pytest.param(ir.TensorType(ir.DataType.FLOAT, denotation="IMAGE"), id="with-a-denotation"),
        pytest.param(ir.SequenceType(ir.TensorType(ir.DataType.INT8)), id="sequence"),
    ],
)
@pytest.mark.parametrize("shape", [None, (), (2, "N", None)])
def test_types_are_written_as_each_value_alone_would_be(
    kind: ir.TypeProtocol, shape: tuple[int | str | None, ...] | None
) -> None:
    types, infos = TypeWriter(), onnx.GraphProto().value_info
    values = [ir.Value(name=name, type=kind, shape=None if shape is None else ir.Shape(shape)) for name in ("a", "b")]

    for value in values:
        types.add(infos, value)

    assert list(infos) == [serialize_value(value) for value in values]


def test_a_file_s_words_about_values_are_kept(tmp_path: pathlib.Path) -> None:
    proto = parse(TEXT)
    proto.graph.value_info[0].doc_string = "after the first layer"
    proto.graph.value_info[0].metadata_props.add(key="layer", value="1")
    onnx.save(proto, tmp_path / "model.onnx")

    value = load_model(tmp_path / "model.onnx").graph[0].outputs[0]

    assert value.doc_string == "after the first layer"
    assert value.metadata_props == {"layer": "1"}
    assert value.shape == ("N", 3)
