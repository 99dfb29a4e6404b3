"""Models of every opset, with data beside them, and with any names, give the answers of plain ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from model_texts import parse
from trtnode.engines.compile.opening import open_model
from workshop import Workshop


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 15, 17, 22, 26])
def test_any_opset_gives_the_answers_of_plain_onnxruntime(
    opset: int, workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    graph = """g (float[N,3,6,6] x, float[4,3,2,2] w, float[4] b) => (float[N,4] y, float[N,4,5,5] r)
        <float[4,3,2,2] w = {%s}, float[4] b = {1,2,3,4}> {
        c = Conv<kernel_shape = [2,2]>(x, w, b) r = Relu(c) m = GlobalAveragePool(r) f = Flatten(m)
        y = LeakyRelu(f) }"""
    weights = ",".join(f"{v:.3f}" for v in floats(48))
    ir = 3 if opset < 9 else onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    if ir > 3:  # from there on, an initializer that is listed as an input is only a default
        graph = graph.replace(", float[4,3,2,2] w, float[4] b)", ")")
    source = workshop.write(graph % weights, opset=opset, ir=ir)

    compiled = workshop.compile_file(source, native_ops=("Relu",))
    executable = open_model(compiled)

    assert executable.facts.segments == 2
    for batch in (1, 3):
        feeds = {"x": floats(batch, 3, 6, 6)}
        same(executable.run(feeds), plain(source, feeds))
        same(plain(compiled, feeds), plain(source, feeds))


def test_weights_in_external_data_are_found_beside_the_model(
    workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    weights = onnx.numpy_helper.from_array(floats(64, 64), "w")
    proto = parse(
        "g (float[N,64] x, float[64,64] w) => (float[N,64] y) { m = MatMul(x, w) r = Relu(m) y = MatMul(r, w) }"
    )
    del proto.graph.input[1]
    proto.graph.initializer.append(weights)
    source = workshop.folder / "external.onnx"
    onnx.save(proto, source, save_as_external_data=True, location="weights.bin", size_threshold=0)
    feeds = {"x": floats(3, 64)}

    compiled = workshop.compile_file(source, native_ops=("Relu",))

    assert not {t.data_location for t in onnx.load(compiled, load_external_data=False).graph.initializer} - {0}
    same(open_model(compiled).run(feeds), plain(source, feeds), 1e-4)
    same(open_model(source).run(feeds), plain(source, feeds))


def test_optional_input_may_be_left_out(workshop: Workshop) -> None:
    element = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [4])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("OptionalHasElement", ["o"], ["h"]), onnx.helper.make_node("Exp", ["x"], ["y"])],
        "g",
        [
            onnx.helper.make_value_info("o", onnx.helper.make_optional_type_proto(element)),
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4]),
        ],
        [
            onnx.helper.make_tensor_value_info("h", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4]),
        ],
    )
    source = workshop.write(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    )
    np.savez(workshop.folder / "samples.npz", x=floats(4))

    executable = open_model(workshop.compile_file(source, samples=workshop.folder / "samples.npz"))

    assert executable.facts.segments == 1
    assert not executable.run({"x": floats(4)})["h"]
    assert not executable.run({"x": floats(4), "o": None})["h"]
    assert executable.run({"x": floats(4), "o": floats(4)})["h"]


def test_names_may_be_anything(workshop: Workshop, plain: RunPlainly, same: AssertSame) -> None:
    proto = parse("g (float[N,4] x) => (float[N,4] y, float[N,4] z) { e = Exp(x) r = Relu(e) y = Neg(r) z = Sqrt(e) }")
    names = {"x": "segment_0", "e": "native_0", "r": "a b/c:d.é", "y": "segment_1", "z": "__out"}
    for index, node in enumerate(proto.graph.node):
        node.name = ["segment_1", "segment_0", "native_1", ""][index]
        node.input[:] = [names[i] for i in node.input]
        node.output[:] = [names[o] for o in node.output]
    for value in (*proto.graph.input, *proto.graph.output):
        value.name = names[value.name]
    source = workshop.write(proto)
    feeds = {"segment_0": floats(2, 4)}

    executable = open_model(workshop.compile_file(source, native_ops=("Relu",)))

    assert executable.facts.segments == 2
    same(executable.run(feeds), plain(source, feeds))
