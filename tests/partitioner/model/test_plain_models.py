"""Tests of the conversion of plain models from protobuf."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from trtnode.partitioner.model.plain_models import is_plain, read_plain_model
from trtnode.partitioner.model.protobuf_walk import Parts

TEXT = """
<ir_version: 10, opset_import: ["": 21, "com.acme": 2], producer_name: "maker", model_version: 3, doc_string: "a doc">
g (float[N, 4] x, float[4] w) => (float[N, 4] y, float[4] w)
<float[4] w = {1, 2, 3, 4}, float[N, 4] later, int64[2] sizes = {1, 4}>
{
  [reads_later] y = Add(later, bias)
  [pool] later, , mask = Dropout <seed = 7> (x, ratio)
  bias = Relu(w)
  [foreign] odd = com.acme.Odd <s = "text", f = 0.5, is = [1, 2]> (x, , sizes)
  ratio = Constant <value = float {0.5}> ()
}
"""


def model(text: str = TEXT) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def test_a_plain_model_is_read_as_onnx_ir_reads_it() -> None:
    proto = model()
    proto.metadata_props.add(key="author", value="someone")
    proto.graph.metadata_props.add(key="graph", value="g")
    proto.graph.node[0].metadata_props.add(key="node", value="n")
    proto.graph.node[0].doc_string = "a node"
    proto.graph.value_info[0].doc_string = "a value"
    proto.graph.value_info[0].metadata_props.add(key="value", value="v")
    expected = ir.to_proto(ir.from_proto(proto))

    found = ir.to_proto(read_plain_model(proto)[0])

    assert found == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("y = Relu(x) y = Abs(x)", id="by-two-nodes"),
        pytest.param("x = Relu(x) y = Abs(x)", id="as-an-input"),
        pytest.param("a = Relu(y) y = Abs(x) y = Neg(x)", id="read-before"),
        pytest.param("y, y = Dropout(x)", id="by-one-node"),
    ],
)
def test_a_value_that_is_made_twice_is_refused(body: str) -> None:
    proto = model(f'<ir_version: 10, opset_import: ["": 21]> g (float[1] x) => (float[1] y) {{ {body} }}')

    with pytest.raises(ValueError, match=r"redeclared|twice"):
        read_plain_model(proto)


@pytest.mark.parametrize("kind", ["subgraphs", "annotations", "functions"])
def test_other_models_are_not_plain(kind: str) -> None:
    proto = model()
    if kind == "subgraphs":
        proto.graph.node[0].attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g.name = "body"
    elif kind == "annotations":
        proto.graph.quantization_annotation.add(tensor_name="x")
    else:
        proto.functions.add(name="f", domain="d")

    assert not is_plain(proto, Parts(proto))
    assert is_plain(model(), Parts(model()))
