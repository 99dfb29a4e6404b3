"""Nodes that an engine library can't tell apart have equal keys, and no others."""

from __future__ import annotations

from model_texts import clean


def test_nodes_are_told_apart_by_type_rank_attribute_opset_and_constness() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x, float16[2, 3] h, float[3] v, float[3] u)
    => (float[2, 3] a, float16[2, 3] b, float[3] c, float[2, 3] d, float[3] e, float[3] f, float[3, 2] i, float[2, 3] j)
    <float[3] w = {1, 2, 3}> {
        a = Relu(x)
        b = Relu(h)
        c = Relu(v)
        d = Relu(a)
        e = Add(v, u)
        f = Add(v, w)
        i = Transpose<perm = [1, 0]>(x)
        j = Transpose<perm = [0, 1]>(x)
    }""")

    keys = [node.key for node in graph.nodes]

    assert keys[0] == keys[3]
    assert len(set(keys)) == 7


def test_texts_in_attributes_tell_nodes_apart() -> None:
    graph = clean("""<ir_version: 10, opset_import: ["": 17, "ai.onnx.ml": 4]> g (string[2] x) =>
    (int64[2] a, int64[2] b, int64[2] c) {
        a = ai.onnx.ml.LabelEncoder<keys_tensor = string[2] {"p", "q"}, values_int64s = [1, 2]>(x)
        b = ai.onnx.ml.LabelEncoder<keys_tensor = string[2] {"p", "q"}, values_int64s = [1, 2]>(x)
        c = ai.onnx.ml.LabelEncoder<keys_tensor = string[2] {"p", "r"}, values_int64s = [1, 2]>(x)
    }""")

    keys = [node.key for node in graph.nodes]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]
