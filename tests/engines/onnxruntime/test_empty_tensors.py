"""Tensors without elements or axes, which would end the process in a kernel of ONNX Runtime, are refused; no others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from trtnode.engines.errors import ExecutionError
from trtnode.engines.onnxruntime.session import NativeSession

SIZES = "<int64[3] ws = {1, 6, 3}, int64[3] rs = {1, 6, 2}, int64[3] ks = {3, 1, 2}, bool yes = {1}>"
GRU = "w = ConstantOfShape (ws) r = ConstantOfShape (rs) y, h = GRU <hidden_size = 2> (a, w, r)"
CELL = '<domain: "own", opset_import: ["": 20]> Cell (a, ws, rs) => (y)'
MODELS = {
    "gru": f"g (float[n,b,3] x) => (float[s,1,t,2] y) {SIZES} {{ a = Relu (x) {GRU} }}",
    "lstm": f"g (float[n,b,3] a) => (float[s,1,t,2] y) {SIZES.replace('6,', '8,')} {{ {GRU.replace('GRU', 'LSTM')} }}",
    "transposed": f"""g (float[n,3,b] x) => (float[s,1,t] y) {SIZES} {{
        k = ConstantOfShape (ks) y = ConvTranspose (x, k) }}""",
    "in-a-subgraph": f"""g (float[n,b,3] x) => (float[s,1,t,2] z) {SIZES} {{
        a = Relu (x)
        z = If (yes) <then_branch = one () => (float[s,1,t,2] y) {{ {GRU} }},
                      else_branch = two () => (float[s,1,t,2] y) {{ {GRU} }}> }}""",
    "in-a-function": f"""g (float[n,b,3] x) => (float[s,1,t,2] y) {SIZES} {{ y = own.Cell (x, ws, rs) }}
        {CELL} {{ {GRU} }}""",
}


def opened(text: str) -> NativeSession:
    return NativeSession(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20, "own": 1]> {text}'))


def feeds(session: NativeSession, *sizes: int) -> dict[str, np.ndarray]:
    return {session.inputs[0]: np.ones(sizes, np.float32)}


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (0, 0, 3)])
@pytest.mark.parametrize("name", MODELS)
def test_an_empty_input_that_would_end_the_process_is_refused(name: str, sizes: tuple[int, ...]) -> None:
    session = opened(MODELS[name])
    sizes = (sizes[0], 3, sizes[1]) if name == "transposed" else sizes

    for run in (session.run, session.run_tensors, session.run_objects):
        with pytest.raises(ExecutionError, match="' has no elements, and ONNX Runtime's "):
            run(feeds(session, *sizes))
    (result,) = session.run(feeds(session, 3, 3, 3))

    assert result.size


def test_an_empty_input_that_reaches_no_such_kernel_is_answered() -> None:
    text = MODELS["gru"].replace("x)", "x, float[k] other)", 1).replace("y)", "y, float[k] z)", 1)
    session = opened(text.replace("a =", "z = Neg (other) a =", 1))

    results = session.run({**feeds(session, 2, 2, 3), "other": np.zeros(0, np.float32)})

    assert [result.size for result in results] == [8, 0]


@pytest.mark.parametrize(
    ("node", "shapes"),
    [
        ("RoiAlign(a, b, c)", {"a": (1, 1, 4, 4), "b": (1, 4), "c": (1,)}),
        ("MaxRoiPool<pooled_shape = [2, 2]>(a, b)", {"a": (1, 1, 4, 4), "b": (1, 5)}),
        ("ReverseSequence(a, c)", {"a": (2, 2), "c": (2,)}),
    ],
    ids=["roi-align", "max-roi-pool", "reverse-sequence"],
)
def test_too_few_axes_that_would_end_the_process_are_refused(node: str, shapes: dict[str, tuple[int, ...]]) -> None:
    session = opened(f"g (float[] a, float[] b, int64[] c) => (float[] y) {{ y = {node} }}")
    good = {name: np.zeros(shapes.get(name, (1,)), np.int64 if name == "c" else np.float32) for name in "abc"}
    if "ReverseSequence" in node:
        good["c"] += 1

    for name, shape in shapes.items():
        with pytest.raises(ExecutionError, match=f"'{name}' has too few axes: .* Send an array of {len(shape)} axes"):
            session.run({**good, name: good[name].ravel()[0]})

    assert session.run(good)[0].size
