"""BatchNormalization is folded into the convolution before it where ONNX Runtime does so too, with the same bits."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.passes.clean_up import run_passes

NORM = "y = BatchNormalization<epsilon = 0.001>(c, scale, shift, mean, variance)"


def network(
    nodes: str = f"c = Conv<pads = [1,1,1,1]>(x, w, b) {NORM}",
    *,
    channels: int = 6,
    group: int = 1,
    inputs: str = "float[1,6,5,5] x",
    outputs: str = "float[1,C,H,W] y",
    kind: type = np.float32,
) -> onnx.ModelProto:
    element = {np.float32: "float", np.float64: "double"}[kind]
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    model = onnx.parser.parse_model(text.replace("float", element).replace("Conv<", f"Conv<group = {group}, "))
    rng = np.random.default_rng(channels)
    values = {name: rng.normal(size=channels) for name in ("b", "scale", "shift", "mean")}
    values |= {"variance": rng.uniform(1e-6, 9, channels), "w": rng.normal(size=(channels, 6 // group, 3, 3))}
    read = {name for node in model.graph.node for name in node.input} - {v.name for v in model.graph.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(array.astype(kind), name) for name, array in values.items() if name in read
    )
    return model


def cleaned(model: onnx.ModelProto) -> onnx.ModelProto:
    work = ir.from_proto(model)
    run_passes(work)
    return ir.to_proto(work)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def answers(model: onnx.ModelProto) -> list[np.ndarray]:
    x = np.random.default_rng(0).normal(size=(1, 6, 5, 5)).astype(np.float32)
    return NativeSession(model, name="a network").run({"x": x})


@settings(max_examples=20)
@given(channels=st.sampled_from([6, 12, 30]), group=st.sampled_from([1, 2, 6]), bias=st.sampled_from(["", ", b"]))
def test_a_folded_network_gives_the_same_bits(channels: int, group: int, bias: str) -> None:
    model = network(f"c = Conv<pads = [1,1,1,1]>(x, w{bias}) {NORM}", channels=channels, group=group)

    folded = cleaned(model)

    assert operators(folded) == ["Conv"]
    np.testing.assert_array_equal(answers(folded)[0], answers(model)[0])


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            network(
                f"c = Conv<pads = [1,1,1,1]>(x, w) {NORM} z = Relu(c)", outputs="float[1,C,H,W] y, float[1,C,H,W] z"
            ),
            id="read-twice",
        ),
        pytest.param(network(outputs="float[1,C,H,W] y, float[1,C,H,W] c"), id="an-output-of-the-graph"),
        pytest.param(network(f"c = ConvTranspose(x, w) {NORM}"), id="transposed"),
        pytest.param(network(kind=np.float64), id="double"),
        pytest.param(network(inputs="float[1,6,5,5] x, float[6] shift"), id="not-constant"),
    ],
)
def test_what_onnxruntime_does_not_fold_so_stays(model: onnx.ModelProto) -> None:
    assert operators(cleaned(model)) == operators(model)
