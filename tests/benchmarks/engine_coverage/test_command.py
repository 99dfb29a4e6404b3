"""The benchmark of engines that were really built, on small models."""

from __future__ import annotations

import gzip
import json
import os
import pathlib

import onnx
import pytest

from benchmarks.engine_coverage import __main__ as program
from benchmarks.engine_coverage import library_alone, measure
from benchmarks.engine_coverage.collection import Case, find_cases
from benchmarks.engine_coverage.library_alone import WholeBuild
from benchmarks.engine_coverage.measure import CoverageRow, InSegments
from benchmarks.engine_coverage.targets import check_targets
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.errors import WorkerError
from trtnode.partitioner.cut.options import PartitionOptions

pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

WHOLE = "g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Exp(a) }"
CUT = """g (float[2, 4] x) => (float[2, 4] y) {
    a = Relu(x)
    b = Cast<to = 11>(a)
    c = Exp(b)
    d = Cast<to = 1>(c)
    y = Neg(d)
}"""
WITH_DEFAULT = "g (float[2, 4] x, float[4] w) => (float[2, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }"
WITH_VERSION = "g (float[2] x) => (float[2] y, float[1] v) <float[1] two = {2}> { y = Exp(x) v = Identity(two) }"
REFUSED = "g (float[4] x) => (double[4] y) { a = Cast<to = 11>(x) y = Exp(a) }"


def write(folder: pathlib.Path, text: str, *requests: dict[str, tuple[int, ...]], packed: bool = False) -> None:
    """Write a model with the description of its stored requests, as the collection has them."""
    folder.mkdir(parents=True)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}').SerializeToString()
    name = "model.onnx.gz" if packed else "model.onnx"
    (folder / name).write_bytes(gzip.compress(model) if packed else model)
    data = [{"inputs": {n: {"kind": "tensor", "shape": s} for n, s in request.items()}} for request in requests]
    (folder / "case.json").write_text(json.dumps({"model_file": name, "data": data}))


@pytest.fixture
def models(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "models"
    write(root / "whole", WHOLE, {"x": (2, 4)}, {"x": (1, 4)}, {"x": (8, 4)}, packed=True)
    write(root / "cut", CUT, {"x": (2, 4)})
    return root


def run(models: pathlib.Path, *options: str) -> tuple[int, dict[str, CoverageRow], dict[str, str]]:
    file = models.with_name("figures.json")
    code = program.main(["--models", str(models), "--json", str(file), *options])
    figures = json.loads(file.read_text())
    rows = {
        row["name"]: CoverageRow(
            name=row["name"],
            in_segments=row["in_segments"] and InSegments(**row["in_segments"]),
            whole=WholeBuild(**row["whole"]),
            problem=row["problem"],
        )
        for row in figures["rows"]
    }
    return code, rows, {one["text"].split(",")[0]: one["value"] for one in figures["sums"]}


def test_each_model_is_built_in_segments_and_whole(models: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, sums = run(models)

    whole, cut = rows["whole"].in_segments, rows["cut"].in_segments
    assert code == 0
    assert whole is not None
    assert cut is not None
    assert (whole.nodes, whole.labelled, whole.engine_nodes, whole.engines) == (2, 2, 2, 1)
    assert (cut.nodes, cut.labelled, cut.engine_nodes, cut.engines) == (5, 2, 2, 2)
    assert (whole.is_one_engine, cut.is_one_engine) == (True, False)
    assert (cut.segments, cut.helper_segments, cut.build_calls, cut.refused_builds, cut.crashes) == (2, 2, 2, 0, 0)
    assert all(row.whole.built and row.ratio for row in rows.values())
    assert sums["models that the library builds whole"] == "1 of 2"
    printed = capsys.readouterr().out
    assert "one for all" in printed
    assert "is double, which TensorRT would compute in float32" in printed


def test_nodes_that_compute_from_constants_alone_are_no_part_of_a_request(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "models" / "version", WITH_VERSION)

    _, rows, _ = run(tmp_path / "models")

    found = rows["version"].in_segments
    assert found is not None
    assert (found.nodes, found.engine_nodes, found.constant_nodes, found.is_one_engine) == (2, 1, 1, True)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_model_with_a_default_is_one_engine(frozen: bool, tmp_path: pathlib.Path) -> None:
    write(tmp_path / "models" / "default", WITH_DEFAULT)

    _, rows, sums = run(tmp_path / "models", *(["--freeze-initializers"] if frozen else []))

    found = rows["default"].in_segments
    assert found is not None
    assert (found.nodes, found.engine_nodes, found.is_one_engine) == (1, 1, True)
    assert sums["models that the library builds whole"] == "1 of 1"
    assert json.loads((tmp_path / "figures.json").read_text())["options"]["freeze_initializers"] is frozen


def test_narrowing_of_doubles_must_be_allowed(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "models" / "double", REFUSED)

    _, without, _ = run(tmp_path / "models")
    _, allowed, _ = run(tmp_path / "models", "--allow", "narrow-double")

    assert [rows["double"].in_segments.engine_nodes for rows in (without, allowed)] == [0, 2]  # type: ignore[union-attr]


def test_a_file_that_is_no_model_costs_its_own_line_alone(
    models: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(models / "broken", WHOLE)
    (models / "broken" / "model.onnx").write_bytes(b"no model")

    _, rows, sums = run(models)

    assert rows["broken"].in_segments is None
    assert "not an ONNX file" in rows["broken"].problem
    assert sums["models"] == "2 of 3"
    assert "broken: " in capsys.readouterr().out


def test_a_library_that_crashes_is_told_from_one_that_refuses(
    models: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_alone, "start_library", os.abort)

    whole = library_alone.build_alone(models / "cut" / "model.onnx", {})

    assert (whole.built, whole.crashed) == (False, True)
    assert whole.problem == "The process that ran abort crashed (exit code -6)."


def crash(*_: object) -> WholeBuild:
    raise WorkerError("The process that ran measure crashed (exit code -11).")


def test_a_measurement_that_crashes_is_a_line_and_a_missed_target(
    models: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure.SubprocessWorker, "call", crash)

    row = measure.measure_apart(find_cases(models)[0], PartitionOptions())

    assert (row.in_segments, row.whole.built) == (None, False)
    (crashes,) = [one for one in check_targets([row]) if one.text.startswith("crashes")]
    assert (crashes.value, crashes.holds) == ("0; 0; 1", False)


def figures(**changes: float) -> InSegments:
    known = dict.fromkeys(
        "nodes labelled segments engines engine_nodes build_calls refused_builds crashes helper_segments".split(), 1
    )
    times = {"build_s": 1.0, "total_s": 2.0}
    return InSegments(**{**known, **times, "constant_nodes": 0, "reasons": (), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("total_s", "alone_s", "holds"),
    [
        pytest.param(3.9, 1.5, True, id="less-than-twice"),
        pytest.param(4.1, 1.5, False, id="more-than-twice"),
        pytest.param(9.0, 0.5, None, id="short-models-have-no-limit"),
    ],
)
def test_added_time_is_judged_for_long_builds(total_s: float, alone_s: float, holds: bool | None) -> None:
    row = CoverageRow(name="m", in_segments=figures(total_s=total_s), whole=WholeBuild(seconds=alone_s, built=True))

    assert check_targets([row])[-1].holds is holds


def test_shapes_are_those_of_the_stored_requests(models: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (case,) = find_cases(models, "whole")

    profile = case.profile(case.unpacked(tmp_path))

    assert profile == {"x": ShapeRange(min=(1, 4), opt=(2, 4), max=(8, 4))}


def test_a_folder_of_plain_files_needs_no_descriptions(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/m.onnx", "n.onnx.gz", "notes.txt"):
        (tmp_path / name).touch()

    assert find_cases(tmp_path) == [
        Case(name="a/m.onnx", model=tmp_path / "a" / "m.onnx"),
        Case(name="n.onnx.gz", model=tmp_path / "n.onnx.gz"),
    ]


def test_a_folder_without_models_is_named(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--models", str(tmp_path / "absent")]) == 2

    assert "absent' has no model '*'; name a folder: --models DIR" in capsys.readouterr().err
