"""Equal rewrites in compiled models: engines and native execution both gain, and users can leave them out."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest

from trtnode.engines.backends.names import REWRITE_NAMES
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.compile.prepare import load_executable, prepare_file, prepare_model
from trtnode.engines.compile.prepared import open_prepared
from workshop import Workshop

SIDE = 12


def block() -> onnx.ModelProto:
    """A block of RepVGG with a Mish and a normalization of groups behind it."""
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
        sp = Softplus(q)
        t = Tanh(sp)
        z = Mul(q, t)
        r = Reshape(z, groups)
        o = InstanceNormalization(r, ones, zeros)
        u = Reshape(o, sizes)
        k = Mul(u, cs)
        y = Add(k, cs)
    }}""")
    shapes = {"w3": (4, 4, 3, 3), "w1": (4, 4, 1, 1), **dict.fromkeys("sbmv", (4,))}
    arrays = {name: (rng.random(shape) + 0.1).astype(np.float32) for name, shape in shapes.items()}
    arrays |= {"groups": np.array([0, 2, -1]), "sizes": np.array([1, 4, SIDE, SIDE]), "ones": np.ones(2, np.float32)}
    arrays |= {"zeros": np.zeros(2, np.float32), "cs": np.ones((4, 1, 1), np.float32)}
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
    executable = load_executable(source.with_name("compiled.onnx"))
    expected = load_executable(source).run(request())["y"]
    assert executable.description["segments"] == 1
    np.testing.assert_allclose(executable.run(request())["y"], expected, rtol=1e-4, atol=1e-5)
    held = op_types(compiled.model)
    assert (held.count("Conv"), held.count("BatchNormalization"), held.count("Softplus")) == (1, 0, 0)
    assert held.count("InstanceNormalization") == 1  # the engine alone has the operator of groups
    assert [(one.rule, one.inside) for one in compiled.report.rewrites] == [
        ("branches", False),
        ("mish", False),
        ("group-norm", True),
    ]


def test_a_native_model_gains_too(source: pathlib.Path, worker: SubprocessWorker) -> None:
    compiled = compile_model(source, CompileOptions(engine="native"), worker=worker)

    assert compiled.rewritten
    assert [one.rule for one in compiled.report.rewrites] == ["branches", "mish"]
    assert op_types(compiled.model).count("Conv") == 1
    onnx.checker.check_model(compiled.model, full_check=True)


def test_a_model_served_natively_gains_too(source: pathlib.Path) -> None:
    executable = prepare_model(source, CompileOptions(engine="native"))

    expected = load_executable(source).run(request())["y"]
    assert [one["rule"] for one in executable.description["report"]["rewrites"]] == ["branches", "mish"]
    np.testing.assert_allclose(executable.run(request())["y"], expected, rtol=1e-4, atol=1e-5)


def test_a_process_prepares_the_native_form_for_another(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    options = CompileOptions(engine="native")

    prepared = prepare_file(source, options, None, tmp_path, threads=None, shares_cores=True)

    executable = open_prepared(source, prepared, None)
    expected = load_executable(source).run(request())["y"]
    assert prepared.rewritten
    assert executable.description["native_nodes"] == 13
    np.testing.assert_allclose(executable.run(request())["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["openvino", "native"])
def test_all_rewrites_can_be_left_out(source: pathlib.Path, worker: SubprocessWorker, engine: str) -> None:
    options = CompileOptions(engine=engine, all_engines=True, no_optimize=REWRITE_NAMES)

    compiled = compile_model(source, options, worker=worker)

    assert compiled.report.rewrites == ()
    assert "rewrites" not in compiled.report.as_json()
    assert op_types(compiled.model) == [node.op_type for node in block().graph.node]


def test_one_rewrite_can_be_left_out_and_explain_says_so(source: pathlib.Path, worker: SubprocessWorker) -> None:
    options = CompileOptions(engine="openvino", no_optimize=("mish",))

    _, report = partition_model(source, options, worker=worker)

    assert [one.rule for one in report.rewrites] == ["branches", "group-norm"]
