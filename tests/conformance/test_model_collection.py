"""Real and unusual models with stored inputs and outputs, from a collection beside the project.

The folder is named by TRTNODE_MODEL_COLLECTION. Each case is a folder with a model, ``case.json`` that maps inputs
and outputs to arrays, and one .npz a request. The features that these models exercise are covered by generated
models elsewhere in the tests, so nothing depends on the folder.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from backend_suite import sample
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.build.tolerance import accumulates_quantized
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.onnxruntime.compatibility import open_native
from trtnode.engines.precision.options import Calibration, PrecisionOptions
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.tensorrt.library import TENSORRT
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.report import Report
from trtnode.partitioner.model.loading import load_model
from trtnode.serving.cli.program import main

ROOT = pathlib.Path(__file__).parents[3] / "shared" / "models"
COLLECTION = pathlib.Path(os.environ.get("TRTNODE_MODEL_COLLECTION", ROOT))
GROUPS = ("models", "opencv_onnx", "ort_small")
SAMPLE_EVERY = 8
FOUND_BY_BUILDS = {ReasonCode.BUILD_FAILED, ReasonCode.INACCURATE, ReasonCode.UNCHECKED}
BUDGETED = ("models/dtln_2", "models/ppocr_v2_det")
"""A speech model and a detector, small enough to search their precision."""


@functools.cache
def _cases() -> dict[str, pathlib.Path]:
    return {f"{g}/{p.parent.name}": p.parent for g in GROUPS for p in sorted((COLLECTION / g).glob("*/case.json"))}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    budgeted = "budgeted" in metafunc.fixturenames
    names = [name for name in BUDGETED if name in _cases()] if budgeted else list(_cases())
    asked = metafunc.config.getoption("conformance")
    ours = "all" if "simulate" in metafunc.fixturenames else "openvino"
    if not budgeted and asked not in ("all", ours):
        names = sample(names, SAMPLE_EVERY)
    absent = pytest.param("", marks=pytest.mark.skip(reason=f"there is no model collection in {COLLECTION.name!r}"))
    metafunc.parametrize("budgeted" if budgeted else "name", names or [absent])


@pytest.mark.conformance
def test_compiled_model_gives_the_stored_outputs(name: str, worker: SubprocessWorker, tmp_path: pathlib.Path) -> None:
    folder = _cases()[name]
    source, compiled = _source(folder, tmp_path), tmp_path / "compiled.onnx"

    compile_model(source, CompileOptions(engine="openvino"), worker=worker).save(compiled)

    _assert_stored_outputs(open_model(compiled), source, folder)


@pytest.mark.conformance
@pytest.mark.skipif(TENSORRT.find().module is not None, reason="TensorRT is installed")
def test_model_is_explained_for_tensorrt_by_the_table(
    name: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = _source(_cases()[name], tmp_path)

    assert main(["explain", str(source), "--engine", "tensorrt", "--no-cache", "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["labelled_by"].startswith("the table; TensorRT is not installed here.")
    assert report["engine_nodes"] + len(report["native"]) == report["nodes"]


@pytest.mark.conformance
def test_explain_and_compile_agree(name: str, worker: SubprocessWorker, tmp_path: pathlib.Path) -> None:
    """Before a compilation they differ only where a build or its check refuses nodes, and after it nowhere."""
    source = _source(_cases()[name], tmp_path)
    options, cache = CompileOptions(engine="openvino"), EngineCache(tmp_path / "cache", 2**30)

    expected = partition_model(source, options, cache=cache, worker=worker)[1]
    compiled = compile_model(source, options, cache=cache, worker=worker).report
    known = partition_model(source, options, cache=cache, worker=worker)[1]

    assert _places(known) == _places(compiled)
    if FOUND_BY_BUILDS.isdisjoint(node.code for node in compiled.native):
        assert _places(expected) == _places(compiled)


def _places(report: Report) -> tuple[list[list[str]], list[tuple[str, str]]]:
    segments = [[node.name for node in segment.nodes] for segment in report.segments]
    return segments, [(node.node, node.code) for node in report.native]


def _assert_stored_outputs(executable: Executable, source: pathlib.Path, folder: pathlib.Path) -> None:
    case = _description(folder)
    quantized = accumulates_quantized(op.op_type for op in load_model(source).graph)
    floors = {n: float(v or 0) for n, v in (case["ort_optall_vs_optoff_maxabs"] or {}).items()}
    for inputs, outputs in _requests(folder):
        results = executable.run(inputs)
        try:
            _assert_outputs(results, outputs, floors, quantized=quantized)
        except AssertionError:  # two beams of equal score change places on another processor
            native = dict(zip(outputs, open_native(source, name=folder.name).run(inputs, list(outputs)), strict=True))
            _assert_outputs(results, native, floors, quantized=quantized)


def _assert_outputs(
    results: Mapping[str, Any], expected: Mapping[str, Any], floors: Mapping[str, float], *, quantized: bool
) -> None:
    for output, value in expected.items():
        _assert_same(results[output], value, floor=floors.get(output, 0.0), quantized=quantized)


def _requests(folder: pathlib.Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Stored inputs, and those of the stored outputs that can be compared."""
    case = _description(folder)
    for request in case["data"]:
        with np.load(folder / request["file"], allow_pickle=False) as arrays:
            kept = {"inputs": request["inputs"], "outputs": _comparable(case, request["outputs"])}
            values = {kind: {n: _value(arrays, entry) for n, entry in found.items()} for kind, found in kept.items()}
        yield values["inputs"], values["outputs"]


def _description(folder: pathlib.Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    return described


def _source(folder: pathlib.Path, unpacked: pathlib.Path) -> pathlib.Path:
    return _unpacked(folder / _description(folder).get("model_file", "model.onnx"), unpacked)


@pytest.mark.conformance
def test_int8_keeps_each_stored_request_inside_the_budget_or_is_given_up(
    budgeted: str, worker: SubprocessWorker, tmp_path: pathlib.Path
) -> None:
    folder = _cases()[budgeted]
    source = _source(folder, tmp_path)
    samples = tmp_path / "samples"
    samples.mkdir()
    for number, (inputs, _) in enumerate(_requests(folder)):
        np.savez(samples / f"{number}.npz", **inputs)
    precision = PrecisionOptions(precision="int8", calibration=Calibration(data=str(samples), allow_few_samples=True))

    options = CompileOptions(engine="openvino", **vars(precision))
    compile_model(source, options, worker=worker).save(tmp_path / "compiled.onnx")

    exact, reduced = open_model(source), open_model(tmp_path / "compiled.onnx")
    for request in sorted(samples.iterdir()):
        with np.load(request) as feeds:
            expected, actual = exact.run(dict(feeds)), reduced.run(dict(feeds))
        assert all(_cosine(actual[name], value) >= 0.99 for name, value in expected.items()), request.name


def _cosine(actual: np.ndarray, expected: np.ndarray) -> float:
    a, b = actual.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def _unpacked(model: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    if model.suffix != ".gz":
        return model
    unpacked = folder / "model.onnx"
    unpacked.write_bytes(gzip.decompress(model.read_bytes()))
    return unpacked


def _comparable(case: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs that are stored in a form that can be compared and that are not random."""
    random = set(case["nondeterministic_outputs"] or ())
    wanted = set(case["compare_only"] or outputs) - random
    return {
        name: entry for name, entry in outputs.items() if name in wanted and entry["kind"] in ("tensor", "sequence")
    }


def _value(arrays: Mapping[str, np.ndarray], entry: Mapping[str, Any]) -> Any:
    if entry["kind"] == "sequence":
        return [_value(arrays, item) for item in entry["items"]]
    if entry["kind"] != "tensor":
        return None
    array = arrays[entry["key"]]
    return array.astype(object) if array.dtype.kind == "U" else array


def _assert_same(actual: Any, expected: Any, *, floor: float, quantized: bool) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            _assert_same(one, other, floor=floor, quantized=quantized)
    elif expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
    elif quantized and expected.ndim > 1 and expected.shape[-1] > 1:
        # Runtimes round quantized sums differently, so decisions are compared, not values.
        np.testing.assert_array_equal(actual.argmax(-1), expected.argmax(-1))
    else:
        largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
        # Where ONNX Runtime has no kernel in float16, it leaves roundings of inputs out: that is two steps.
        rtol = 2e-3 if expected.dtype == np.float16 else 1e-3
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=max(1e-4 * largest, 1e-5, floor))
