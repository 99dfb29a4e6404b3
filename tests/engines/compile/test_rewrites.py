"""Equal rewrites in compiled models: engines and native execution both gain, and users can leave them out."""

from __future__ import annotations

import pathlib
from collections import Counter

import numpy as np
import onnx
import pytest

from trtnode.engines.backends.names import REWRITE_NAMES
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from workshop import Workshop, prepare_and_open

SIDE = 32


def block() -> onnx.ModelProto:
    """A block of RepVGG with a HardSwish by Clip behind it."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 21]>
    block (float[1,4,{SIDE},{SIDE}] x) => (float[1,4,{SIDE},{SIDE}] y) {{
        a = Conv <pads = [1, 1, 1, 1]> (x, w3)
        an = BatchNormalization(a, s, b, m, v)
        c = Conv(x, w1)
        cn = BatchNormalization(c, s, b, m, v)
        i = BatchNormalization(x, s, b, m, v)
        p = Add(an, cn)
        q = Add(p, i)
        t = Add(q, three)
        l = Clip(t, zero, six)
        g = Mul(q, l)
        y = Div(g, six)
    }}""")
    shapes = {"w3": (4, 4, 3, 3), "w1": (4, 4, 1, 1), **dict.fromkeys("sbmv", (4,))}
    arrays = {name: (rng.random(shape) + 0.1).astype(np.float32) for name, shape in shapes.items()}
    arrays |= {name: np.array(number, np.float32) for name, number in {"zero": 0, "three": 3, "six": 6}.items()}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(block())


def request() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((1, 4, SIDE, SIDE)).astype(np.float32)}


def op_types(model: onnx.ModelProto) -> list[str]:
    nodes = model.functions[0].node if model.functions else model.graph.node
    return [node.op_type for node in nodes]


def test_an_engine_and_its_fallback_hold_the_merged_block(source: pathlib.Path, worker: SubprocessWorker) -> None:
    compiled = compile_model(source, CompileOptions(engine="openvino", all_engines=True), worker=worker)

    compiled.save(source.with_name("compiled.onnx"))
    executable = open_model(source.with_name("compiled.onnx"))
    expected = open_model(source).run(request())["y"]
    assert executable.facts.segments == 1
    np.testing.assert_allclose(executable.run(request())["y"], expected, rtol=1e-4, atol=1e-5)
    held = op_types(compiled.model)
    assert (held.count("Conv"), held.count("BatchNormalization"), held.count("Clip")) == (1, 0, 1)
    assert [one.rule for one in compiled.report.rewrites] == ["branches"]


def test_a_native_model_gains_too(source: pathlib.Path, worker: SubprocessWorker) -> None:
    compiled = compile_model(source, CompileOptions(engine="native"), worker=worker)

    assert compiled.rewritten
    assert [one.rule for one in compiled.report.rewrites] == ["branches", "hard-swish"]
    assert op_types(compiled.model).count("Conv") == 1
    onnx.checker.check_model(compiled.model, full_check=True)


def test_a_model_served_natively_gains_too(source: pathlib.Path) -> None:
    executable = prepare_and_open(source, CompileOptions(engine="native"))

    expected = open_model(source).run(request())["y"]
    assert [one["rule"] for one in executable.facts.report["rewrites"]] == ["branches", "hard-swish"]
    assert executable.facts.native_nodes == 2
    np.testing.assert_allclose(executable.run(request())["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["openvino", "native"])
def test_all_rewrites_can_be_left_out(source: pathlib.Path, worker: SubprocessWorker, engine: str) -> None:
    options = CompileOptions(engine=engine, all_engines=True, no_optimize=REWRITE_NAMES)

    compiled = compile_model(source, options, worker=worker)

    assert compiled.report.rewrites == ()
    assert "rewrites" not in compiled.report.as_json()
    assert Counter(op_types(compiled.model))["Conv"] == Counter(node.op_type for node in block().graph.node)["Conv"]


def test_one_rewrite_can_be_left_out_and_explain_says_so(source: pathlib.Path, worker: SubprocessWorker) -> None:
    options = CompileOptions(engine="native", no_optimize=("branches",))

    _, report = partition_model(source, options, worker=worker)

    assert [one.rule for one in report.rewrites] == ["hard-swish"]


@pytest.mark.parametrize("order", [1, 2])
def test_short_vectors_keep_their_direction_in_an_engine(order: int, workshop: Workshop) -> None:
    lengths = np.float32([1, 1e-6, 1e-30, 1e25, 0])[:, np.newaxis]
    x = lengths * np.random.default_rng(2).normal(size=(5, 8)).astype(np.float32)
    text = f"g (float[n,8] x) => (float[n,8] y) {{ a = Neg(x) y = LpNormalization<p = {order}>(a) }}"

    executable = workshop.executable(text, all_engines=True)

    assert executable.facts.native_nodes == 0
    norms = np.linalg.norm(x.astype(np.float64), order, axis=1)[:, np.newaxis]
    exact = -x / np.where(norms > 0, norms, 1)
    np.testing.assert_allclose(executable.run({"x": x})["y"], exact, rtol=1e-5)
