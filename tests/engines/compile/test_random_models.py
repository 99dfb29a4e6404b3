"""Random graphs give the answers of plain ONNX Runtime, whichever operator runs natively."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrays import floats
from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.compile.opening import open_model
from workshop import Workshop

UNARY = ("Abs", "Exp", "Neg", "Relu", "Sigmoid", "Tanh", "Softplus")
BINARY = ("Add", "Mul", "Sub", "Max")


@st.composite
def random_graphs(draw: st.DrawFn) -> tuple[str, str]:
    """A graph of element-wise nodes over all earlier values, and one operator that is to run natively."""
    size = draw(st.sampled_from(["N", "3"]))
    values = ["x", "z"]
    nodes = []
    for index in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from(UNARY + BINARY))
        inputs = [draw(st.sampled_from(values)) for _ in range(2 if op in BINARY else 1)]
        values.append(f"v{index}")
        nodes.append(f"t{index} = {op}({', '.join(inputs)}) v{index} = Tanh(t{index})")
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    declared = ", ".join(f"float[{size},4] {name}" for name in outputs)
    graph = f"g (float[{size},4] x, float[{size},4] z) => ({declared}) {{ {' '.join(nodes)} }}"
    return graph, draw(st.sampled_from(UNARY + BINARY))


@settings(max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True)
@given(drawn=random_graphs())
def test_random_graph_gives_the_answers_of_plain_onnxruntime(
    drawn: tuple[str, str], shared_workshop: Workshop, in_process: InProcessWorker, plain: RunPlainly, same: AssertSame
) -> None:
    graph, native_op = drawn
    source = shared_workshop.write(graph)

    compiled = shared_workshop.compile_file(source, native_ops=(native_op,), worker=in_process)
    executable = open_model(compiled)

    assert executable.facts.rejected == ()
    for seed in range(3):
        feeds = {"x": floats(3, 4, seed=seed), "z": floats(3, 4, seed=seed + 9)}
        expected = plain(source, feeds)
        same(executable.run(feeds), expected)
        same(plain(compiled, feeds), expected)
