"""The reference gives the same answers as every other engine, on the same models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from stand_in_workers import InProcessWorker
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.reference import ReferenceBackend
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import BuildError
from workshop import Workshop

Feeds = Mapping[str, Any]


@pytest.mark.parametrize(
    ("graph", "requests", "native_ops", "segments"),
    [
        pytest.param(
            "g (float[2,4] x) => (float[2,4] y) <float[4] w = {1,2,3,4}> { e = Exp(x) y = Mul(e, w) }",
            [{"x": floats(2, 4)}] * 2,
            (),
            1,
            id="fixed",
        ),
        pytest.param(
            "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) r = Relu(e) y = Softmax(r) }",
            [{"x": floats(2, 4)}, {"x": floats(5, 4)}],
            ("Relu",),
            2,
            id="dynamic-with-a-native-node",
        ),
        pytest.param(
            "g (double[N,4] x, int64[N] i) => (double[N,4] y, int64[N] j) { y = Exp(x) j = Add(i, i) }",
            [{"x": floats(2, 4).astype(np.float64), "i": np.array([1, 2**40])}],
            (),
            1,
            id="types-that-openvino-does-not-compute",
        ),
        pytest.param(
            "g (float[N] x) => (float[M] y) <int64[1] s = {3}, int64[1] t = {100}> { e = Exp(x) y = Slice(e, s, t) }",
            [{"x": floats(n)} for n in (5, 2)],
            (),
            1,
            id="no-elements-inside",
        ),
    ],
)
def test_models_give_the_answers_of_plain_onnxruntime(
    graph: str,
    requests: list[Feeds],
    native_ops: tuple[str, ...],
    segments: int,
    workshop: Workshop,
    in_process: InProcessWorker,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    source = workshop.write(graph)

    compiled = workshop.compile_file(source, engine="reference", native_ops=native_ops, worker=in_process)
    executable = open_model(compiled)

    assert executable.facts.engine == "reference"
    assert executable.facts.segments == segments
    for feeds in requests:
        same(executable.run(feeds), plain(source, feeds))
        same(plain(compiled, feeds), plain(source, feeds))


def test_openvino_agrees_with_the_reference(workshop: Workshop, in_process: InProcessWorker, same: AssertSame) -> None:
    source = workshop.write(
        "g (float[N,3,6,6] x) => (float[N,3] y) { a = AveragePool<kernel_shape = [2,2]>(x)"
        " s = Sigmoid(a) m = GlobalMaxPool(s) f = Flatten(m) y = LogSoftmax(f) }"
    )
    feeds = {"x": floats(2, 3, 6, 6)}

    answers = [
        open_model(workshop.compile_file(source, engine=engine, worker=in_process)).run(feeds)
        for engine in ("reference", "openvino")
    ]

    same(answers[1], answers[0])


def test_random_operators_run_natively(workshop: Workshop, in_process: InProcessWorker) -> None:
    source = workshop.write("g (float[N,4] x) => (float[N,4] y) { r = RandomUniformLike(x) y = Mul(r, x) }")

    compiled = workshop.compile(source, engine="reference", worker=in_process)

    assert [(n.op_type, n.code) for n in compiled.report.native] == [("RandomUniformLike", "UNSUPPORTED_OP")]


def test_operator_that_the_reference_does_not_know_is_an_error(workshop: Workshop) -> None:
    source = workshop.write("g (float[4] x) => (float[4] y) { y = nowhere.Nothing(x) }", domains=', "nowhere": 1')

    with pytest.raises(BuildError, match="Nothing"):
        ReferenceBackend().build(source, BuildOptions())
