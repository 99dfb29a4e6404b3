"""Inputs with defaults: engines hold the defaults as constants, and other values are answered natively."""

from __future__ import annotations

import logging
import pathlib
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arrays import floats
from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import InvalidInputError
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.cut.options import PartitionOptions
from workshop import Workshop

SCALED = """g (float[2,4] x, float[4] w, float[4] v) => (float[2,4] y)
    <float[4] w = {1, 2, 3, 4}, float[4] v = {2, 2, 2, 2}> {
    a = Relu(x)
    b = Add(a, w)
    c = Exp(b)
    d = Mul(c, v)
    y = Neg(d)
}"""

RESHAPED = """g (float[2,4] x, int64[K] s) => (float[M] y) <int64[2] s = {4, 2}> {
    a = Relu(x)
    b = Reshape(a, s)
    c = Neg(b)
    sizes = Shape(c)
    all = ReduceProd<keepdims=1>(sizes)
    d = Exp(c)
    y = Reshape(d, all)
}"""
"""The shapes of most tensors follow from the default, their number of dimensions too."""

X = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
ENGINES = ["openvino", "reference", "tensorrt-rtx"]


def counted(path: pathlib.Path) -> tuple[Executable, list[str]]:
    """A loaded model, and the reasons of its native answers."""
    executable, reasons = open_model(path), list[str]()
    executable.on_fallback = reasons.append
    return executable, reasons


def operators(path: pathlib.Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def compiled(source: pathlib.Path, worker: Any, engine: str = "openvino", **options: Any) -> pathlib.Path:
    path = source.with_name(f"compiled_{source.name}")
    compile_model(source, CompileOptions(engine=engine, **options), worker=worker).save(path)
    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_one_engine_holds_the_defaults_and_the_file_is_right_for_any_value(
    engine: str, workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(SCALED)
    replaced = {**X, "v": np.zeros(4, np.float32)}

    path = compiled(source, workshop.worker, engine)

    assert operators(path) == ["TrtNode"]
    assert [value.name for value in onnx.load(path).graph.input] == ["x", "w", "v"]
    executable = open_model(path)
    assert [(spec.name, spec.optional) for spec in executable.inputs] == [("x", False), ("w", True), ("v", True)]
    for feeds in (X, replaced):
        same(plain(path, feeds), plain(source, feeds))
        same(executable.run(feeds), plain(source, feeds))


@pytest.mark.parametrize("engine", ["openvino", "reference"])
def test_another_value_is_answered_natively_and_counted(
    engine: str, workshop: Workshop, plain: RunPlainly, same: AssertSame, caplog: pytest.LogCaptureFixture
) -> None:
    source = workshop.write(SCALED)
    executable, reasons = counted(compiled(source, workshop.worker, engine))
    replaced = {**X, "w": np.zeros(4, np.float32)}

    with caplog.at_level(logging.WARNING):
        same(executable.run(X), plain(source, X))
        assert reasons == []
        same(executable.run(replaced), plain(source, replaced))
        same(executable.run(replaced, ["y"]), plain(source, replaced))

    assert reasons == ["replaced_initializer"] * 2
    sentence = "Its engines hold the default of input 'w' as a constant, and the request gives another value."
    assert f"Request answered natively (replaced_initializer): {sentence}" in caplog.text


def test_the_default_itself_may_be_sent_and_is_answered_by_the_engine(
    workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(SCALED)
    executable, reasons = counted(compiled(source, workshop.worker))
    feeds = {**X, "v": np.full(4, 2, np.float32)}

    same(executable.run(feeds), plain(source, feeds))

    assert reasons == []


@pytest.mark.parametrize(
    ("engine", "native"),
    [
        *(("openvino", native) for native in [(), ("Exp",), ("Reshape",), ("Shape",), ("Relu", "ReduceProd")]),
        ("reference", ("Neg",)),
        ("tensorrt-rtx", ("Exp",)),
    ],
)
def test_a_default_that_sizes_tensors_may_be_replaced_by_any_shape(
    engine: str,
    native: tuple[str, ...],
    shared_workshop: Workshop,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    source = shared_workshop.write(RESHAPED)
    worker = shared_workshop.worker if engine == "tensorrt-rtx" else in_process

    path = compiled(source, worker, engine, partition=PartitionOptions(native_ops=native))

    assert "TrtNode" in operators(path)
    executable, reasons = counted(path)
    same(executable.run(X), plain(source, X))
    assert reasons == []
    for shape in ([4, 2], [8], [2, 2, 2], [1, 8]):
        feeds = {**X, "s": np.array(shape, np.int64)}
        same(plain(path, feeds), plain(source, feeds))
        same(executable.run(feeds), plain(source, feeds))


def test_declared_shapes_hold_for_any_value(workshop: Workshop) -> None:
    source = workshop.write(RESHAPED)

    path = compiled(source, workshop.worker, partition=PartitionOptions(native_ops=("Exp",)))

    graph = onnx.load(path).graph
    typed = {value.name: onnx.helper.printable_value_info(value) for value in (*graph.value_info, *graph.output)}
    assert typed == {"c": "%c[FLOAT]", "d": "%d[FLOAT]", "y": "%y[FLOAT, M]"}


def test_without_native_fallback_another_value_is_refused(workshop: Workshop, plain: RunPlainly) -> None:
    source = workshop.write(SCALED)
    path = source.with_name("stripped.onnx")
    workshop.compile(source).without_fallback().save(path)
    executable = open_model(path)

    assert np.allclose(executable.run(X)["y"], plain(source, X)["y"])
    with pytest.raises(InvalidInputError, match=r"default of input 'w' as a constant.* leave the input out"):
        executable.run({**X, "w": np.zeros(4, np.float32)})


def test_an_input_whose_shape_is_given_is_sent_and_its_nodes_stay_native(
    workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(SCALED)
    sent = ({"w": ShapeRange(min=(4,), opt=(4,), max=(4,))},)

    path = compiled(source, workshop.worker, shapes=sent)

    assert operators(path) == ["TrtNode", "Add", "TrtNode"]
    executable, reasons = counted(path)
    feeds = {**X, "w": np.zeros(4, np.float32)}
    same(executable.run(feeds), plain(source, feeds))
    assert reasons == []


def test_inputs_that_all_have_defaults_are_data_of_requests(
    workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write("""g (float[4] x, float[4] w) => (float[4] y)
        <float[4] x = {1, 2, 3, 4}, float[4] w = {4, 3, 2, 1}> {
        a = Add(x, w)
        b = Exp(a)
        y = Neg(b)
    }""")

    path = compiled(source, workshop.worker)

    assert operators(path) == ["Add", "TrtNode"]
    executable, reasons = counted(path)
    for feeds in ({}, {"x": np.zeros(4, np.float32)}):
        same(executable.run(feeds), plain(source, feeds))
    assert reasons == []


def test_models_with_control_flow_keep_nodes_that_read_defaults_native(
    workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write("""g (float[2,4] x, bool f, float[4] w) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}> {
        a = Exp(x)
        b = Add(a, w)
        c = If (f) <
            then_branch = then () => (float[2,4] t) { t = Mul(b, w) },
            else_branch = else () => (float[2,4] e) { e = Neg(b) }
        >
        y = Neg(c)
    }""")

    path = compiled(source, workshop.worker)

    assert "Add" in operators(path)
    executable, reasons = counted(path)
    for sent in ({}, {"w": np.zeros(4, np.float32)}):
        feeds = {**X, "f": np.array(True), **sent}
        same(plain(path, feeds), plain(source, feeds))
        same(executable.run(feeds), plain(source, feeds))
    assert reasons == []


def test_an_expanded_function_does_not_fold_a_default(workshop: Workshop, plain: RunPlainly, same: AssertSame) -> None:
    source = workshop.write(
        """g (float[2,4] x, float[4] w) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}> {
        a = Exp(x)
        b = Neg(w)
        c = Add(a, b)
        d = MeanVarianceNormalization<axes = [0]>(c)
        y = Neg(d)
    }"""
    )

    for engine in ("openvino", "tensorrt-rtx"):
        path = compiled(source, workshop.worker, engine)
        for feeds in (X, {**X, "w": np.array([5, 0, -1, 2], np.float32)}):
            same(plain(path, feeds), plain(source, feeds), 1e-4)


@st.composite
def graphs_with_defaults(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """Element-wise nodes over inputs, some with defaults; an operator that runs natively; the inputs that are sent."""
    values, nodes = ["x", "w", "v"], []
    for index in range(draw(st.integers(2, 8))):
        op = draw(st.sampled_from(["Add", "Mul", "Max", "Neg", "Tanh", "Reshape"]))
        first = draw(st.sampled_from(values))
        second = {"Neg": "", "Tanh": "", "Reshape": ", s"}.get(op, f", {draw(st.sampled_from(values))}")
        nodes.append(f"t{index} = {op}({first}{second}) v{index} = Tanh(t{index})")
        values.append(f"v{index}")
    outputs = draw(st.lists(st.sampled_from(values[3:]), min_size=1, max_size=3, unique=True))
    graph = (
        f"g (float[2,4] x, float[2,4] w, float[2,4] v, int64[2] s) => ({', '.join(f'float[A,B] {o}' for o in outputs)})"
        " <float[2,4] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2,4] v = {0, 1, 0, 1, 0, 1, 0, 1}, int64[2] s = {2, 4}>"
        f" {{ {' '.join(nodes)} }}"
    )
    native = draw(st.sampled_from(["Add", "Mul", "Neg", "Reshape"]))
    return graph, native, draw(st.lists(st.sampled_from(["w", "v", "s"]), min_size=1, unique=True))


@settings(max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True)
@given(drawn=graphs_with_defaults())
def test_random_graphs_with_defaults_give_the_answers_of_plain_onnxruntime(
    drawn: tuple[str, str, list[str]],
    shared_workshop: Workshop,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    graph, native, sent = drawn
    source = shared_workshop.write(graph)

    path = shared_workshop.compile_file(source, native_ops=(native,), worker=in_process)

    executable = open_model(path)
    assert executable.facts.rejected == ()
    others = {"w": floats(2, 4, seed=5), "v": floats(2, 4, seed=6), "s": np.array([-1, 4])}
    for feeds in (dict[str, Any](), {name: others[name] for name in sent}):
        feeds["x"] = floats(2, 4, seed=7)
        same(plain(path, feeds), plain(source, feeds))
        same(executable.run(feeds), plain(source, feeds))


def test_a_default_that_contradicts_the_declared_shape_gives_its_own(
    workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write(
        "g (float[1,2] x, int64[4] pads) => (float[1,4] y) <int64[4] pads = {0, 1, 1, 0}> { y = Pad(x, pads) }"
    )
    feeds = {"x": np.ones((1, 2), np.float32)}

    path = workshop.compile_file(source)

    same(open_model(path).run(feeds), plain(source, feeds))
