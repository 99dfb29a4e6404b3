"""Models that only engines run: ONNX Runtime refuses them in any form, and onnx.reference may not run."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import onnx.reference
import pytest

from faulty_backends import UnreliableBackend
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.compiled_model import NATIVE_FALLBACK
from trtnode.engines.build import jobs
from trtnode.engines.build.native_runs import SampledModel
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import BuildError, ExecutionError, ModelLoadError
from trtnode.serving.cli.program import main
from workshop import Workshop

GRAPH = """g (float[N,2,8,8] x, float[1,4] rois, int64[1] batch) => (float[1,2,2,2] y) {
    e = Exp (x)
    r = RoiAlign <output_height=2, output_width=2, sampling_ratio=2> (e, rois, batch)
    y = Neg (r)
}"""
"""ONNX Runtime has kernels of RoiAlign for opset 16 to 21 alone."""

FEEDS = {
    "x": np.linspace(-1, 1, 128, dtype=np.float32).reshape(1, 2, 8, 8),
    "rois": np.array([[1, 1, 6, 6]], np.float32),
    "batch": np.zeros(1, np.int64),
}


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(GRAPH, opset=22)


def expected(source: pathlib.Path) -> np.ndarray:
    return np.asarray(onnx.reference.ReferenceEvaluator(str(source)).run(None, FEEDS)[0])


def test_a_model_that_only_an_engine_runs_is_compiled_and_says_so(
    workshop: Workshop, source: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = workshop.compile(source, reference=False)

    assert not compiled.native_fallback
    assert {p.key: p.value for p in compiled.model.metadata_props}[NATIVE_FALLBACK] == "none"
    assert "no native fallback" in caplog.text


def test_it_gives_what_the_reference_gives(workshop: Workshop, source: pathlib.Path) -> None:
    executable = open_model(workshop.compile_file(source, reference=False))

    np.testing.assert_allclose(executable.run(FEEDS)["y"], expected(source), rtol=1e-5)
    assert executable.facts.native_fallback is False


def test_an_engine_that_fails_is_an_error(
    workshop: Workshop, source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = open_model(workshop.compile_file(source, reference=False))

    with pytest.raises(ExecutionError, match=r"holds an index outside.* no native path"):
        executable.run({**FEEDS, "batch": np.full(1, 2**40)})


def test_a_node_that_neither_runs_is_the_error_of_onnxruntime(workshop: Workshop, source: pathlib.Path) -> None:
    with pytest.raises(ModelLoadError, match="RoiAlign"):
        workshop.compile(source, native_ops=("RoiAlign",), reference=False)


def test_without_engines_there_is_nothing_to_run_it(workshop: Workshop, source: pathlib.Path) -> None:
    with pytest.raises(ModelLoadError, match="RoiAlign"):
        workshop.compile(source, engine="native", reference=False)
    with pytest.raises(ModelLoadError, match="only its engines run this model"):
        open_model(workshop.compile_file(source, reference=False), use_engines=False)


@pytest.mark.usefixtures("choosing_engines")
def test_commands_compile_and_run_it_with_the_reference_behind_the_engine(
    source: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled, inputs, outputs = (tmp_path / name for name in ("compiled.onnx", "in.npz", "out.npz"))
    np.savez(inputs, **FEEDS)

    assert main(["compile", str(source), "-o", str(compiled), "--no-cache", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["native_fallback"], facts["reference_nodes"]) == (True, 0)
    assert facts["choice"] == "nothing was measured"  # ONNX Runtime can't run it, so its engines stay
    assert main(["run", str(compiled), "--inputs", str(inputs), "--outputs", str(outputs)]) == 0

    np.testing.assert_allclose(np.load(outputs)["y"], expected(source), rtol=1e-5)


def test_only_trusted_operators_pass_where_the_reference_refuses_too(
    source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: pathlib.Path) -> None:
        raise BuildError("onnx.reference: no such operator")

    def refuse_nodes(model: pathlib.Path, refusal: ModelLoadError, reference: object) -> None:
        raise refusal

    segments = [
        jobs.BuiltSegment(name=name, engine=source, envelope="", quantized=False, trusted=name == "known")
        for name in ("known", "unknown")
    ]
    monkeypatch.setattr(jobs, "ReferenceSession", refuse)
    monkeypatch.setattr(jobs, "open_refused", refuse_nodes)

    checked = jobs.check_segments(SampledModel(path=source, inputs=()), segments, natively=False)

    assert checked.problems == {"unknown": jobs.UNCHECKED}


def test_an_engine_that_contradicts_the_reference_is_not_used(
    workshop: Workshop, in_process: InProcessWorker, unreliable: type[UnreliableBackend]
) -> None:
    unreliable.miscomputes = ("RoiAlign",)

    with pytest.raises(ModelLoadError, match="RoiAlign"):
        workshop.compile(workshop.write(GRAPH, opset=22), engine="unreliable", worker=in_process, reference=False)
