"""Results of a function's nodes, measured by the shapes of its inputs."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from benchmarks.attacks.bombs import HEADER
from trtnode.partitioner.passes.result_sizes import ResultSizes

MOST = 1 << 20

OUTER = "f (a, b) => (y) { c = Add(a, b) y = ReduceSum<keepdims = 0>(c) }"
SQUARE = "f (a, b) => (y) { s = Shape(a) t = Concat<axis = 0>(s, s) c = ConstantOfShape(t) y = ReduceSum(c) }"
STEP = "f (a, b) => (y) { w = Constant<value_floats = [1.0]>() c = Concat<axis = 0>(a, w) d = Add(c, b) y = Relu(d) }"


def sizes(function: str, declared: str) -> ResultSizes:
    text = f'{HEADER[:-2]}, "d": 1]> g (float{declared}) => (float y) {{ y = d.f(a, b) }}'
    model = ir.from_proto(onnx.parser.parse_model(f'{text} <domain: "d", opset_import: ["": 18]> {function}'))
    (call,) = model.graph
    return ResultSizes(call, model.functions[call.op_identifier()], MOST)


@pytest.mark.parametrize(
    ("function", "declared", "fitting", "beyond"),
    [
        pytest.param(OUTER, "[n, 1] a, float[1, m] b", [(500, 1), (1, 500)], [(600, 1), (1, 600)], id="outer-sum"),
        pytest.param(SQUARE, "[n] a, float[1] b", [(500,), (1,)], [(600,), (1,)], id="size-from-a-shape"),
        pytest.param(OUTER, "[n, m] a, float[1, 1] b", [(0, 500), (1, 1)], [(2, 2**18), (1, 1)], id="none-and-many"),
        pytest.param(STEP, "[n] a, float[m] b", [(2**17,), (2**17 + 1,)], [(2**18,), (2**18 + 1,)], id="one-more"),
    ],
)
def test_results_are_known_from_shapes(
    function: str, declared: str, fitting: list[tuple[int, ...]], beyond: list[tuple[int, ...]]
) -> None:
    found = sizes(function, declared)

    for _ in range(2):
        assert found.fit(fitting)
        assert not found.fit(beyond)


def test_smaller_inputs_are_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sizes(STEP, "[n] a, float[m] b")
    found.fit([(9,), (10,)])
    monkeypatch.setattr(ResultSizes, "_sizes", None)

    assert all(found.fit([(n,), (n + 1,)]) for n in range(9))
