"""Results of a benchmark: rows, comparisons and agreement with native."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from trtnode.bench.environment import describe_environment, describe_load
from trtnode.bench.errors import ResultFileError
from trtnode.bench.latency.agreement import compare_answers
from trtnode.bench.latency_report.regression import compare_results
from trtnode.bench.latency_report.results import LatencyResult, LatencyRow, LeftOut, geometric_means, read_result
from trtnode.bench.latency_report.tables import print_result

FIELDS = {
    "network", "setting", "engine", "via", "batch", "threads", "p50_ms", "p95_ms", "p99_ms", "mean10_ms", "ratio",
    "ratio_low", "ratio_high", "cosine", "max_abs", "top1_agreement", "load_s", "engine_bytes", "peak_rss_mb",
}  # fmt: skip


def row(network: str = "lenet5", setting: str = "fp32", ratio: float = 1.0, **more: Any) -> LatencyRow:
    values: dict[str, Any] = {
        "engine": "openvino", "via": "process", "batch": 1, "threads": 2, "p50_ms": 10.0 / ratio, "p95_ms": 20.0,
        "p99_ms": 30.0, "mean10_ms": 11.0, "ratio_low": ratio - 0.02, "ratio_high": ratio + 0.02, "cosine": 1.0,
        "max_abs": 0.0, "top1_agreement": 1.0, "load_s": 0.1, "engine_bytes": 5_000_000, "peak_rss_mb": 120.0,
    }  # fmt: skip
    return LatencyRow(network=network, setting=setting, ratio=ratio, **{**values, **more})


def native(network: str = "lenet5", **more: Any) -> LatencyRow:
    return row(network, "native", 1.0, **{"engine": "native", "ratio_low": 1.0, "ratio_high": 1.0, **more})


def result(*rows: LatencyRow, complete: bool = True, features: tuple[str, ...] = ()) -> LatencyResult:
    environment = {**describe_environment(), "load_average_after": describe_load(), "features": list(features)}
    return LatencyResult(environment=environment, rows=list(rows), complete=complete)


def test_json_has_the_fields_that_are_promised_and_comes_back_as_it_was(tmp_path: pathlib.Path) -> None:
    before = result(native(), row(threads=None, top1_agreement=None))
    before.left_out.append(LeftOut(network="lenet5", setting="openvino", reason="It doesn't take Foo."))
    path = tmp_path / "run.json"

    path.write_bytes(before.as_json())

    content = json.loads(path.read_text())
    assert content["rows"][0].keys() >= FIELDS
    assert content["environment"]["cores"] >= 1
    assert read_result(path) == before


def test_a_model_without_engines_is_not_called_slower_than_native(capsys: pytest.CaptureFixture[str]) -> None:
    unchanged = row(engine="native", ratio=0.95, about="lenet5: all native is kept.")

    print_result(result(native(), unchanged), Console(width=120))

    out = capsys.readouterr().out
    assert out.startswith("lenet5, fp32: no engine is kept, so it runs natively (ratio 0.950 in 0.930-0.970")
    assert "To try" not in out


def test_what_is_no_number_becomes_null_in_json() -> None:
    content = json.loads(result(row(max_abs=math.nan, cosine=math.inf)).as_json())

    assert (content["rows"][0]["max_abs"], content["rows"][0]["cosine"]) == (None, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("{", "is no result of a benchmark", id="no-json"),
        pytest.param("[]", "is no result of a benchmark", id="no-object"),
        pytest.param(
            '{"environment": {}, "rows": [{"network": "a"}]}', "rows.0.setting: Field required", id="no-field"
        ),
        pytest.param('{"rows": 3, "environment": {}}', "rows: Input should be", id="rows-no-list"),
    ],
)
def test_a_file_that_is_no_result_is_one_sentence(text: str, problem: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)

    with pytest.raises(ResultFileError, match=r"run\.json: ") as caught:
        read_result(path)

    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_environment_tells_what_decides_about_speed() -> None:
    environment = describe_environment()

    assert {"processor", "features", "cores", "memory_gb", "load_average", "versions", "time"} <= environment.keys()


def test_geometric_means_are_taken_for_each_setting_way_and_batch() -> None:
    rows = [row("a", ratio=2.0), row("b", ratio=8.0), row("a", "int8", ratio=3.0), row("a", ratio=5.0, batch=8)]

    means = geometric_means(rows)

    assert means == {
        ("fp32", "process", 1): pytest.approx(4.0),
        ("int8", "process", 1): pytest.approx(3.0),
        ("fp32", "process", 8): pytest.approx(5.0),
    }


@pytest.mark.parametrize(
    ("before", "after", "regression"),
    [
        pytest.param((2.0, 1.9, 2.1), (1.5, 1.4, 1.6), True, id="slower"),
        pytest.param((2.0, 1.9, 2.1), (1.8, 1.7, 1.95), False, id="intervals-overlap"),
        pytest.param((2.0, 1.999, 2.001), (1.95, 1.949, 1.951), False, id="within-the-tolerance"),
        pytest.param((1.5, 1.4, 1.6), (2.0, 1.9, 2.1), False, id="faster"),
    ],
)
def test_a_regression_is_beyond_chance_and_beyond_the_tolerance(
    before: tuple[float, float, float], after: tuple[float, float, float], regression: bool
) -> None:
    old, new = (row(ratio=r, ratio_low=low, ratio_high=high) for r, low, high in (before, after))

    comparison = compare_results(result(old), result(new))

    assert [change.is_regression for change in comparison.changes] == [regression]
    assert comparison.passes is not regression


def test_only_rows_of_the_same_kind_are_compared() -> None:
    comparison = compare_results(result(row(batch=8), row("vgg16")), result(row(batch=1), row("vgg16")))

    assert [change.after.network for change in comparison.changes] == ["vgg16"]
    assert [(r.network, r.batch) for r in comparison.missing] == [("lenet5", 8)]
    assert [(r.network, r.batch) for r in comparison.new] == [("lenet5", 1)]


def test_runs_without_a_common_row_do_not_pass() -> None:
    assert not compare_results(result(row("a")), result(row("b"))).passes


def test_agreement_is_the_worst_over_samples_and_outputs() -> None:
    one, other = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    small = np.array([5], np.int64)

    agreement = compare_answers([[one, small], [one, small]], [[one, small], [one + other / 2, small + 3]])

    assert agreement.cosine == pytest.approx(1 / math.sqrt(1.25))
    assert agreement.max_abs == 3.0
    assert agreement.top1_agreement == 1.0


def test_top_1_counts_vectors_along_the_last_axis_of_the_first_output() -> None:
    expected = np.eye(4)
    actual = expected[[0, 1, 2, 0]]

    assert compare_answers([[expected]], [[actual]]).top1_agreement == 0.75


def test_outputs_that_are_no_numbers_tell_nothing() -> None:
    agreement = compare_answers([[["a"], np.array(["b"])]], [[["a"], np.array(["b"])]])

    assert dataclasses.astuple(agreement) == (None, None, None)


def test_a_single_logit_has_no_largest_element() -> None:
    assert compare_answers([[np.ones((3, 1))]], [[np.ones((3, 1))]]).top1_agreement is None


def test_the_cosine_of_single_numbers_is_that_of_all_samples_together() -> None:
    native = [[np.array([[value]])] for value in (3.0, 4.0, 0.01)]
    others = [[np.array([[value]])] for value in (3.0, 4.0, -0.01)]

    assert compare_answers(native, others).cosine == pytest.approx(1.0, abs=1e-5)
    assert compare_answers(native[2:], others[2:]).cosine == -1
