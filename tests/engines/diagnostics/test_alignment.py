"""Comparing a compiled model with its source, value by value."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from quantized_patterns import qdq
from trtnode.engines.diagnostics.alignment import align, signal_to_noise_db
from trtnode.engines.errors import EngineError
from workshop import Workshop

CHAIN = """chain (float[N,4] x) => (float[N,4] y) <float[4] scale = {{1, 2, {third}, 4}}> {{
    [first] a = Relu(x) [second] b = Mul(a, scale) [third] c = Neg(b) [fourth] d = Abs(c) [fifth] y = Add(d, x) }}"""
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(CHAIN.format(third=3))


@pytest.fixture
def compiled(workshop: Workshop, source: pathlib.Path) -> pathlib.Path:
    return workshop.compile_file(source, native_ops=["Neg"])


def envelope_of(node: onnx.NodeProto) -> dict[str, Any]:
    return json.loads(next(a for a in node.attribute if a.name == "envelope").s)


def with_engine_of(path: pathlib.Path, other: pathlib.Path, segment: str) -> pathlib.Path:
    """A compiled model with an engine that computes something else than the nodes it stands for."""
    model, donor = onnx.load(path), onnx.load(other)
    (node,) = (n for n in model.graph.node if n.name == segment)
    (replacement,) = (n for n in donor.graph.node if n.name == segment)
    kept = {"segment_sha256": envelope_of(node)["segment_sha256"]}
    del node.attribute[:]
    node.attribute.extend(replacement.attribute)
    text = json.dumps(envelope_of(node) | kept).encode()
    next(a for a in node.attribute if a.name == "envelope").s = text
    faulty = path.with_name("faulty.onnx")
    onnx.save(model, faulty)
    return faulty


def test_a_compiled_model_agrees_with_its_source(compiled: pathlib.Path, source: pathlib.Path) -> None:
    alignment = align(compiled, source, {"x": X})

    assert alignment.first is None
    assert [(v.name, v.stage) for v in alignment.values] == [("b", "segment_0"), ("c", "native_1"), ("y", "segment_1")]
    assert alignment.missing == ()


def test_an_engine_that_computes_something_else_is_named(
    workshop: Workshop, compiled: pathlib.Path, source: pathlib.Path
) -> None:
    other = workshop.compile_file(workshop.write(CHAIN.format(third=5)), native_ops=["Neg"])

    first = align(with_engine_of(compiled, other, "segment_0"), source, {"x": X}).first

    assert first is not None
    assert (first.name, first.stage, first.node) == ("b", "segment_0", None)


def test_what_follows_a_fault_diverges_too_but_is_not_named_first(workshop: Workshop, source: pathlib.Path) -> None:
    changed = workshop.compile_file(workshop.write(CHAIN.format(third=5)), native_ops=["Neg"])

    alignment = align(changed, source, {"x": X})

    assert [v.diverges for v in alignment.values] == [True, True, True]
    assert alignment.first is alignment.values[0]


def test_a_native_node_at_fault_is_named(workshop: Workshop, source: pathlib.Path) -> None:
    changed = CHAIN.format(third=3).replace("Neg(b)", "Identity(b)").replace("Abs(c)", "Abs(b)")
    text = changed.replace("Add(d, x)", "Add(d, c)")
    compiled = workshop.compile_file(workshop.write(text.replace("Identity", "Exp")), native_ops=["Exp"])

    first = align(compiled, source, {"x": X}).first

    assert first is not None
    assert (first.name, first.node) == ("c", "third")


def test_values_that_the_reference_lacks_are_listed(workshop: Workshop, compiled: pathlib.Path) -> None:
    reference = workshop.write("other (float[N,4] x) => (float[N,4] y) { b = Relu(x) y = Neg(b) }")

    assert align(compiled, reference, {"x": X}).missing == ("c",)


def test_a_looser_limit_lets_a_difference_pass(workshop: Workshop, source: pathlib.Path) -> None:
    changed = workshop.compile_file(workshop.write(CHAIN.format(third=3.01)))

    assert align(changed, source, {"x": X}).first is not None
    assert align(changed, source, {"x": X}, min_sqnr_db=20).first is None


def test_a_compiled_reference_is_refused(compiled: pathlib.Path) -> None:
    with pytest.raises(EngineError, match="Give the model that it was made from"):
        align(compiled, compiled, {"x": X})


def test_a_model_without_engines_is_refused(source: pathlib.Path) -> None:
    with pytest.raises(EngineError, match=r"nothing to align. Compile it first, with --all-engines"):
        align(source, source, {"x": X})


def test_an_engine_that_may_not_run_here_is_refused(compiled: pathlib.Path, source: pathlib.Path) -> None:
    model = onnx.load(compiled)
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "engine":
            attribute.t.raw_data = attribute.t.raw_data[:-1] + b"?"
    onnx.save(model, compiled)

    with pytest.raises(EngineError, match="segment_0 can't be used"):
        align(compiled, source, {"x": X})


@pytest.mark.parametrize(
    ("expected", "actual", "decibels"),
    [
        pytest.param([3.0, 4.0], [3.0, 4.0], math.inf, id="equal"),
        pytest.param([3.0, 4.0], [3.0, 4.5], 20.0, id="a tenth of the amplitude"),
        pytest.param([np.nan, 1.0], [np.nan, 1.0], math.inf, id="equal, one not a number"),
        pytest.param([1.0, 1.0], [np.nan, 1.0], -math.inf, id="not a number"),
        pytest.param([0.0, 0.0], [1.0, 0.0], -math.inf, id="no signal"),
        pytest.param([1.0], [1.0, 1.0], -math.inf, id="another shape"),
    ],
)
def test_signal_to_noise_of_known_values(expected: list[float], actual: list[float], decibels: float) -> None:
    assert signal_to_noise_db(np.array(expected), np.array(actual)) == pytest.approx(decibels)


def change(model: onnx.ModelProto, constant: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    (initializer,) = (one for one in model.graph.initializer if one.name == constant)
    initializer.CopyFrom(onnx.numpy_helper.from_array(function(onnx.numpy_helper.to_array(initializer)), constant))


def test_a_quantized_model_is_compared_as_onnxruntime_is_with_itself(workshop: Workshop) -> None:
    pattern = qdq("MatMul")
    change(pattern.model, "w", lambda weights: weights // 2)  # sums of such weights don't saturate on any processor
    change(pattern.model, "step", lambda _: np.array(1 / 256, np.float32))  # exact quotients, so ties are equal
    source = workshop.write(pattern.model)
    compiled = workshop.compile_file(source, native_ops=["DequantizeLinear"])

    alignment = align(compiled, source, pattern.feeds)

    assert alignment.first is None
    assert {v.native_sqnr_db is not None for v in alignment.values} == {True}


def test_a_model_that_is_not_quantized_has_one_native_answer(compiled: pathlib.Path, source: pathlib.Path) -> None:
    assert {v.native_sqnr_db for v in align(compiled, source, {"x": X}).values} == {None}
