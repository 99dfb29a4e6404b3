"""A model without its native fallback: smaller, answered by its engines alone, and honest about it."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import pytest

from comparison import AssertSame, RunPlainly
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import ExecutionError, ModelLoadError, OutOfRangeError
from trtnode.engines.openvino.engine import OpenVinoEngine
from workshop import Workshop

MODEL = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
g (float[N,64] x) => (float[N,64] y, float[64] k) {
    a = MatMul(x, w) b = local.double(a) s = Softsign(b) n = local.shift(s, v) y = MatMul(n, w2) k = Identity(v) }
<opset_import: ["": 21], domain: "local"> double (p) => (q) { q = Add(p, p) }
<opset_import: ["": 21], domain: "local"> shift (p, r) => (q) { q = Add(p, r) }"""
FEEDS = {"x": np.linspace(-1, 1, 192, dtype=np.float32).reshape(3, 64)}


@pytest.fixture(scope="module")
def source(shared_workshop: Workshop) -> pathlib.Path:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(MODEL)
    weights = {name: rng.standard_normal((64, 64), np.float32) for name in ("w", "w2")}
    weights["v"] = np.ones(64, np.float32)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return shared_workshop.write(model)


@pytest.fixture
def stripped(source: pathlib.Path, workshop: Workshop, tmp_path: pathlib.Path) -> pathlib.Path:
    workshop.compile(source, native_ops=("Softsign",)).without_fallback().save(tmp_path / "stripped.onnx")
    return tmp_path / "stripped.onnx"


def test_only_what_runs_natively_is_left(stripped: pathlib.Path, source: pathlib.Path, workshop: Workshop) -> None:
    model = onnx.load(stripped)

    inputs = [(node.op_type, len(node.input)) for node in model.graph.node]
    assert sorted(inputs) == [("Identity", 1), ("Softsign", 1), ("TrtNode", 1), ("TrtNode", 1)]
    assert list(model.functions) == []
    assert "w" not in {tensor.name for tensor in model.graph.initializer}
    assert stripped.stat().st_size < workshop.compile_file(source, native_ops=("Softsign",)).stat().st_size


def test_engines_answer_as_before(
    stripped: pathlib.Path, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    executable = open_model(stripped)

    assert executable.facts.segments == 2
    assert executable.facts.native_fallback is False
    same(executable.run(FEEDS), plain(source, FEEDS), 1e-3)


def test_request_that_engines_can_not_answer_fails_with_the_reason(
    stripped: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = open_model(stripped)

    def refuse(engine: OpenVinoEngine) -> Any:
        raise OutOfRangeError("int64_range", "A value is too large.")

    monkeypatch.setattr(OpenVinoEngine, "run", refuse)

    with pytest.raises(ExecutionError, match=r"A value is too large\. There is no native path to answer instead"):
        executable.run(FEEDS)


def test_model_whose_engine_is_refused_is_not_loaded(stripped: pathlib.Path) -> None:
    proto = onnx.load(stripped)
    engine = next(a for node in proto.graph.node for a in node.attribute if a.name == "engine")
    engine.t.raw_data = bytes(len(engine.t.raw_data))
    onnx.save(proto, stripped)

    with pytest.raises(ModelLoadError):
        open_model(stripped)
