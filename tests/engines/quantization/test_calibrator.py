"""Ranges of tensors: what calibration learns, keeps and refuses."""

from __future__ import annotations

import json
import logging
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import calibrate as peer

from model_texts import parse
from trtnode.engines.backends.progress import Progress, listening
from trtnode.engines.errors import CalibrationDataError, CalibrationTableError
from trtnode.engines.quantization import calibrator, range_estimators
from trtnode.engines.quantization.calibrator import calibrate
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.quantization.table import CalibrationTable
from workshop import Workshop

SQUARES = "net (float[N, 4] x) => (float[N, 4] y) { big = Mul (x, x)  y = Relu (big) }"


@pytest.fixture
def samples(digits: pathlib.Path) -> CalibrationDataset:
    return CalibrationDataset(digits.with_name("calibration.npz"))


def write_samples(folder: pathlib.Path, **arrays: np.ndarray) -> CalibrationDataset:
    path = folder / "samples.npz"
    np.savez(path, **arrays)
    return CalibrationDataset(path)


def observe_all(estimator: range_estimators.RangeEstimator, *batches: np.ndarray) -> tuple[float, float]:
    for batch in batches:
        estimator.observe(batch, float(batch.min()), float(batch.max()))
    return estimator.estimate()


class OneByOne(peer.CalibrationDataReader):
    def __init__(self, images: np.ndarray) -> None:
        self._images = iter(images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self._images, None)
        return None if image is None else {"image": image[np.newaxis]}


def offer(monkeypatch: pytest.MonkeyPatch, *things: Any) -> None:
    """Make functions and classes importable from a module ``samples_of_a_test``."""
    module = types.ModuleType("samples_of_a_test")
    module.__dict__.update({thing.__name__: thing for thing in things})
    monkeypatch.setitem(sys.modules, module.__name__, module)


def count_ahead(ahead: list[int], read: list[int]) -> Callable[[Progress], None]:
    """Notes how many samples have been read, beyond those that are done."""
    return lambda step: ahead.append(len(read) - step.done)


def edit_range(text: str, pair: list[Any]) -> str:
    fields = json.loads(text)
    fields["ranges"]["image"] = pair
    return json.dumps(fields)


def test_minmax_ranges_are_those_of_onnxruntime(
    digits: pathlib.Path, samples: CalibrationDataset, tmp_path: pathlib.Path
) -> None:
    images = np.load(digits.with_name("calibration.npz"))["image"][:20]
    theirs = peer.create_calibrator(digits, augmented_model_path=str(tmp_path / "augmented.onnx"))
    theirs.collect_data(OneByOne(images))
    expected = theirs.compute_data()

    table = calibrate(digits, samples, method="minmax", samples=20)

    assert table.ranges.keys() >= {"image", "relu1.out", "pool.out", "gemm.out", "probabilities"}
    for name, (low, high) in table.ranges.items():
        theirs_low, theirs_high = expected[name].range_value
        assert low == pytest.approx(theirs_low.item(), abs=1e-5)
        assert high == pytest.approx(theirs_high.item(), abs=1e-5)


def test_a_mean_range_is_of_groups_with_enough_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_estimators.Mean, "ENOUGH", 8)
    estimator = range_estimators.Mean()

    for low, high in [(-1, 2), (-3, 1), (0, 4), (-1, 0), (-100, 100)]:  # two groups, and one that stays open
        estimator.observe(np.linspace(low, high, 4, dtype=np.float32), low, high)

    assert estimator.estimate() == (-2, 3)


def test_few_values_keep_their_extremes() -> None:
    estimator = range_estimators.Mean()

    for low, high in [(-1, 2), (-3, 1)]:
        estimator.observe(np.linspace(low, high, 4, dtype=np.float32), low, high)

    assert estimator.estimate() == (-3, 2)


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_thresholds_are_those_of_onnxruntime(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bins = 256  # as many as onnxruntime's search takes a fraction of a second for
    monkeypatch.setattr(range_estimators.Percentile, "BINS", bins)
    monkeypatch.setattr(range_estimators.Entropy, "BINS", bins)
    rng = np.random.default_rng(7)
    values = (rng.standard_normal(50_000) * rng.gamma(1, 1, 50_000)).astype(np.float32)
    collector = peer.HistogramCollector(method, False, bins, 128, 99.9, "same")
    collector.collect({"x": values})
    if method == "entropy":
        expected = collector.get_entropy_threshold(collector.histogram_dict["x"], 128)
    else:
        expected = collector.compute_percentile()["x"][:2]

    estimator = range_estimators.find_estimator(method, 99.9)()
    actual = observe_all(estimator, values)

    width = float(2 * np.abs(values).max() / bins)
    assert actual == pytest.approx([float(e) for e in expected], abs=1.01 * width)


def test_moving_average_gives_an_outlier_little_weight() -> None:
    usual, outlier = np.array([-1.0, 1.0], np.float32), np.array([0.0, 100.0], np.float32)

    low, high = observe_all(range_estimators.MovingAverage(), usual, usual, outlier)

    assert (low, high) == (pytest.approx(-0.99), pytest.approx(1.99))


@pytest.mark.parametrize("method", ["entropy", "percentile"])
def test_a_histogram_takes_the_same_memory_whatever_it_has_seen(method: str) -> None:
    estimator = range_estimators.find_estimator(method, 100.0)()

    low, high = observe_all(estimator, *(np.float32([0.0, 10.0**power, -1e-3]) for power in (-30, 0, 9, 20)))

    assert estimator._counts.shape == (estimator.BINS,)  # type: ignore[attr-defined]
    assert estimator._counts.sum() == 12  # type: ignore[attr-defined]
    assert (low, high) == (pytest.approx(-1e-3), pytest.approx(1e20)) or method == "entropy"
    assert -1.001e-3 <= low < high <= 1.001e20


def test_calibration_reads_no_further_than_the_batch_it_runs(
    digits: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrator, "BATCH_BYTES", 1)
    read: list[int] = []

    def stream() -> Iterator[dict[str, np.ndarray]]:
        for number in range(30):
            read.append(number)
            yield {"image": np.full((1, 1, 8, 8), number / 30, np.float32)}

    offer(monkeypatch, stream)
    ahead: list[int] = []

    with listening(count_ahead(ahead, read)):
        table = calibrate(digits, CalibrationDataset("samples_of_a_test:stream"))

    assert table.samples == 30
    assert max(ahead) == 0


def test_samples_are_joined_where_the_batch_is_dynamic(
    digits: pathlib.Path, samples: CalibrationDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one: list[Progress] = []
    joined: list[Progress] = []
    with listening(joined.append):
        together = calibrate(digits, samples, method="minmax")
    monkeypatch.setattr(calibrator, "BATCH_BYTES", 1)

    with listening(one_by_one.append):
        alone = calibrate(digits, samples, method="minmax")

    assert len(one_by_one) == 200 + 2 > len(joined)
    assert alone.data_sha256 == together.data_sha256
    for name, expected in alone.ranges.items():
        assert together.ranges[name] == pytest.approx(expected, abs=1e-5)


def test_progress_knows_the_number_of_samples_of_a_file(digits: pathlib.Path, samples: CalibrationDataset) -> None:
    seen: list[Progress] = []

    with listening(seen.append):
        calibrate(digits, samples, samples=7)

    assert (seen[0], seen[-1]) == (Progress("Calibrating", 0, 7), Progress("Calibrating", 7, 7))


def test_what_holds_infinity_has_no_range(shared_workshop: Workshop, tmp_path: pathlib.Path) -> None:
    model = shared_workshop.write("net (float[N, 2] x) => (float[N, 2] z) { y = Log (x)  z = Exp (y) }")

    table = calibrate(model, write_samples(tmp_path, x=np.float32([[0.0, 1.0]])))

    assert table.ranges == {"x": (0.0, 1.0), "z": (0.0, 1.0)}


def test_a_model_that_ends_in_maps_is_calibrated(shared_workshop: Workshop, tmp_path: pathlib.Path) -> None:
    node = "y = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (x)"
    model = shared_workshop.write(f"net (float[N, 2] x) => (seq(map(int64, float)) y) {{ {node} }}")

    table = calibrate(model, write_samples(tmp_path, x=np.float32([[1.0, 1.0]])))

    assert table.ranges == {"x": (1.0, 1.0)}


def test_an_input_with_a_default_needs_no_samples(shared_workshop: Workshop, tmp_path: pathlib.Path) -> None:
    model = parse(
        "net (float[N, 2] x, float[2] w) => (float[N, 2] y) { y = Mul (x, w) }",
        opset=17,
        ir_version=8,
        w=np.float32([2, 3]),
    )

    table = calibrate(shared_workshop.write(model), write_samples(tmp_path, x=np.float32([[1, 1]])))

    assert table.ranges == {"x": (1.0, 1.0), "y": (2.0, 3.0)}


def test_an_input_that_never_changes_is_told_of(
    shared_workshop: Workshop, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = shared_workshop.write(SQUARES)

    with caplog.at_level(logging.WARNING):
        table = calibrate(model, write_samples(tmp_path, x=np.full((3, 4), 2, np.float32)))

    assert "input 'x' is 2 in every sample" in caplog.text
    assert table.ranges["x"] == (2.0, 2.0)


def test_a_model_that_fails_on_a_sample_blames_the_data(shared_workshop: Workshop, tmp_path: pathlib.Path) -> None:
    model = shared_workshop.write(
        "net (float[N] x, int64[1] shape) => (float[K] y) { z = Reshape (x, shape)  y = Relu (z) }"
    )
    dataset = write_samples(tmp_path, x=np.ones((1, 4), np.float32), shape=np.int64([[3]]))

    with pytest.raises(CalibrationDataError, match=r"samples\.npz: the model does not run on it: onnxruntime"):
        calibrate(model, dataset)


def test_a_table_survives_its_file(digits: pathlib.Path, samples: CalibrationDataset, tmp_path: pathlib.Path) -> None:
    table = calibrate(digits, samples, method="percentile", percentile=99.9, samples=5)

    table.save(tmp_path / "ranges.json")

    assert CalibrationTable.load(tmp_path / "ranges.json", model=digits) == table
    assert (table.method, table.samples) == ("percentile 99.9", 5)
    assert table.versions.keys() == {"numpy", "onnxruntime"}
    assert len(table.means["image"]) == 1


def test_a_table_without_means_is_refused(
    digits: pathlib.Path, samples: CalibrationDataset, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "ranges.json"
    calibrate(digits, samples, samples=1).save(path)
    fields = json.loads(path.read_text())
    del fields["means"]
    path.write_text(json.dumps(fields))

    with pytest.raises(CalibrationTableError, match=r"'means'\)\. Make it again with `trtnode calibrate`"):
        CalibrationTable.load(path, model=digits)


def test_the_table_of_another_model_is_refused(
    digits: pathlib.Path, samples: CalibrationDataset, shared_workshop: Workshop, tmp_path: pathlib.Path
) -> None:
    calibrate(digits, samples, samples=1).save(tmp_path / "ranges.json")
    other = shared_workshop.write(SQUARES)

    with pytest.raises(CalibrationTableError, match=r"was made from another model than .* again with `trtnode calib"):
        CalibrationTable.load(tmp_path / "ranges.json", model=other)


def test_the_table_is_of_another_model_if_only_the_weights_beside_the_file_changed(
    digits: pathlib.Path, samples: CalibrationDataset, tmp_path: pathlib.Path
) -> None:
    model = tmp_path / "digits.onnx"
    onnx.save(onnx.load(digits), model, save_as_external_data=True, location="weights", size_threshold=0)
    calibrate(model, samples, samples=1).save(tmp_path / "ranges.json")
    assert CalibrationTable.load(tmp_path / "ranges.json", model=model).samples == 1

    weights = bytearray((tmp_path / "weights").read_bytes())
    weights[0] ^= 1
    (tmp_path / "weights").write_bytes(weights)

    with pytest.raises(CalibrationTableError, match="was made from another model"):
        CalibrationTable.load(tmp_path / "ranges.json", model=model)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda text: text[:-20], "JSONDecodeError", id="cut-short"),
        pytest.param(lambda text: "[]", "is no calibration table", id="something-else"),
        pytest.param(lambda text: text.replace("calibration.1", "calibration.9"), "its format is", id="newer-format"),
        pytest.param(lambda text: text.replace('"ranges"', '"rages"'), "KeyError: 'ranges'", id="missing-field"),
        pytest.param(lambda text: edit_range(text, [2.0, 1.0]), "range of 'image' is", id="upside-down"),
        pytest.param(lambda text: edit_range(text, [0.0, "x"]), "could not convert", id="not-a-number"),
        pytest.param(lambda text: edit_range(text, [0.0]), "ValueError", id="one-end"),
        pytest.param(lambda text: text.replace('"means": {', '"means": {"x": [NaN],'), "not all finite", id="no-mean"),
        pytest.param(lambda text: text.replace('"factors": {', '"factors": {"x": [0],'), "above zero", id="no-factor"),
    ],
)
def test_a_damaged_table_is_refused(
    digits: pathlib.Path, samples: CalibrationDataset, change: Callable[..., Any], told: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "ranges.json"
    calibrate(digits, samples, samples=1).save(path)
    path.write_text(change(path.read_text()))

    with pytest.raises(CalibrationTableError, match=told):
        CalibrationTable.load(path, model=digits)


def test_a_table_that_is_not_there_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CalibrationTableError, match=r"none\.json: can't be read \(No such file"):
        CalibrationTable.load(tmp_path / "none.json", model=None)
