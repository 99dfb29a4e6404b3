"""Compiled models compute in the precision asked for, as far as the accuracy budget allows, and say what they do."""

from __future__ import annotations

import importlib
import json
import logging
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from engines import (
    AccuracyBudget,
    Calibration,
    CompileOptions,
    EngineCache,
    PrecisionOptions,
    PrecisionRule,
    load_executable,
    prepare_model,
)
from engines.accuracy import CalibrationShare, calibrate_to
from engines.budget import Figures
from engines.calibration_data import CalibrationDataset
from engines.errors import CalibrationTableError, MetricError, PrecisionError
from engines.plan import specs
from engines.registry import get_backend
from partitioner import Graph, UnknownOptionError, load_model

SAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "digits" / "calibration.npz"
DATA = Calibration(data=str(SAMPLES), method="minmax")

PAIR = """g (float[1,4] x) => (float[1,4] y) <float[4,4] w, float[4,4] v> {
    [first] a = MatMul(x, w) [middle] r = Relu(a) [second] y = MatMul(r, v)
}"""


def wishes(asked: str, *rules: str, calibration: Calibration = DATA, **limits: Any) -> PrecisionOptions:
    return PrecisionOptions(
        asked=asked,
        rules=tuple(map(PrecisionRule.parse, rules)),
        calibration=calibration,
        budget=AccuracyBudget.of(**limits),
    )


@pytest.fixture
def pair(workshop: Any) -> pathlib.Path:
    """Two layers with an activation between them."""
    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {PAIR}')
    del model.graph.initializer[:]
    weights = {"w": rng.normal(size=(4, 4)), "v": rng.normal(size=(4, 4))}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items())
    return workshop.write(model)


@pytest.fixture
def vectors(tmp_path: pathlib.Path) -> Calibration:
    path = tmp_path / "vectors.npz"
    np.savez(path, x=np.random.default_rng(5).normal(size=(40, 1, 4)).astype(np.float32))
    return Calibration(data=str(path), method="minmax")


@pytest.fixture(scope="module")
def int8(shared_workshop: Any, digits: pathlib.Path) -> Any:
    return shared_workshop.compile(digits, precision=wishes("int8", min_top1_agreement=0.975))


def envelope(compiled: Any) -> dict[str, Any]:
    (node,) = (n for n in compiled.model.graph.node if n.op_type == "TrtNode")
    found: dict[str, Any] = json.loads(next(a.s for a in node.attribute if a.name == "envelope"))
    return found


def points(path: pathlib.Path, test: Mapping[str, np.ndarray]) -> float:
    """Share of right answers, in percent."""
    results = load_executable(path).run({"image": test["image"]})["probabilities"]
    return 100 * float((results.argmax(1) == test["label"]).mean())


# What is computed


def test_digits_loses_little_in_int8(int8: Any, digits: pathlib.Path, digits_test: Any, tmp_path: pathlib.Path) -> None:
    int8.save(tmp_path / "int8.onnx")

    assert int8.precision_effective == "int8"
    assert points(tmp_path / "int8.onnx", digits_test) >= points(digits, digits_test) - 0.3


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_digits_loses_nothing_in_half_precision(
    workshop: Any, digits: pathlib.Path, digits_test: Any, precision: str
) -> None:
    path = workshop.compile_file(digits, precision=wishes(precision))

    effective = get_backend("openvino").precision_support().effective[precision]
    assert load_executable(path).description["precision"] == {"asked": precision, "effective": effective}
    assert points(path, digits_test) >= points(digits, digits_test) - 0.1


def test_the_function_of_a_segment_stays_in_its_own_precision(
    int8: Any, digits: pathlib.Path, digits_test: Any, tmp_path: pathlib.Path, plain: Any
) -> None:
    int8.save(tmp_path / "int8.onnx")
    feeds = {"image": digits_test["image"]}

    expected, actual = plain(digits, feeds), plain(tmp_path / "int8.onnx", feeds)

    np.testing.assert_array_equal(actual["probabilities"], expected["probabilities"])
    assert "QuantizeLinear" not in {node.op_type for f in int8.model.functions for node in f.node}


def test_a_library_that_follows_types_gets_a_float16_model(
    workshop: Any, pair: pathlib.Path, vectors: Calibration, in_process: Any
) -> None:
    asked = wishes("fp16", "node=second:fp32", calibration=vectors)

    compiled = workshop.compile(pair, engine="reference", worker=in_process, precision=asked)

    (node,) = compiled.model.graph.node
    engine = onnx.ModelProto.FromString(next(a.t for a in node.attribute if a.name == "engine").raw_data)
    types = {t.data_type for t in engine.graph.initializer}
    assert types == {onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT}
    assert [n.op_type for n in engine.graph.node] == ["Cast", "MatMul", "Relu", "Cast", "MatMul"]
    assert envelope(compiled)["precision_effective"] == "fp16"


def test_a_chain_that_is_float16_itself_gets_an_engine(workshop: Any) -> None:
    text = "g (float16[1,64] x) => (float16[1,64] y) { a = MatMul(x, w) r = Relu(a) b = MatMul(r, w) y = Tanh(b) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    weights = np.random.default_rng(2).normal(0, 0.2, (64, 64)).astype(np.float16)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))

    compiled = workshop.compile(workshop.write(model))

    assert [len(s.nodes) for s in compiled.report.segments] == [4]


# What is told


def test_the_envelope_has_the_plan_and_the_ranges(int8: Any) -> None:
    found = envelope(int8)

    assert (found["precision_asked"], found["precision_effective"]) == ("int8", "int8")
    assert set(found["node_precisions"].values()) == {"int8"}
    assert "conv1" in found["node_precisions"]
    assert len(found["calibration_sha256"]) == 64


def test_the_report_has_what_was_asked_found_and_tried(int8: Any) -> None:
    found = int8.report.as_json()["precision"]

    assert (found["asked"], found["effective"], found["rules"]) == ("int8", "int8", [])
    assert found["budget"] == {"min_top1_agreement": 0.975}
    assert found["figures"]["samples"] == 40  # one in five of 200
    assert found["figures"]["top1_agreement"] >= 0.975
    assert found["calibration"]["samples"] == 160
    assert found["segments"] == [{"name": "segment_0", "effective": "int8", "nodes_asked": {"int8": 13}}]
    assert found["tried"][-1]["precision"] == "int8"


def test_float32_has_no_block_in_the_report(workshop: Any, pair: pathlib.Path) -> None:
    compiled = workshop.compile(pair)

    assert "precision" not in compiled.report.as_json()
    assert envelope(compiled)["node_precisions"] == {}


def test_what_was_compiled_for_serving_tells_its_precision(
    pair: pathlib.Path, vectors: Calibration, tmp_path: pathlib.Path
) -> None:
    executable = prepare_model(pair, CompileOptions(precision=wishes("int8", calibration=vectors, min_cosine=0.9)))

    assert executable.description["precision"] == {"asked": "int8", "effective": "int8"}


# Rules


def test_rules_keep_nodes_out_of_int8(workshop: Any, pair: pathlib.Path, vectors: Calibration) -> None:
    asked = wishes("int8", "node=first:fp32", "op=MatMul:int8", calibration=vectors, min_cosine=0.9)

    compiled = workshop.compile(pair, precision=asked)

    assert envelope(compiled)["node_precisions"] == {"first": "fp32", "middle": "int8", "second": "int8"}
    assert compiled.report.as_json()["precision"]["rules"] == ["node=first:fp32", "op=MatMul:int8"]


def test_a_rule_alone_reduces_what_it_fits(workshop: Any, pair: pathlib.Path, vectors: Calibration) -> None:
    compiled = workshop.compile(pair, precision=wishes("fp32", "node=second:int8", calibration=vectors, min_cosine=0.9))

    assert envelope(compiled)["node_precisions"] == {"first": "fp32", "middle": "fp32", "second": "int8"}
    assert compiled.precision_effective == "int8"


# The budget


def test_the_noisiest_nodes_move_back_until_the_budget_holds(workshop: Any, digits: pathlib.Path, int8: Any) -> None:
    limit = 0.9 * int8.report.as_json()["precision"]["figures"]["max_abs"]

    compiled = workshop.compile(digits, precision=wishes("int8", max_abs=limit))

    found = compiled.report.as_json()["precision"]
    failed, held = found["tried"][0], found["tried"][-1]
    assert (failed["moved_back"], failed["code"]) == (0, "INACCURATE")
    assert "an element differs by" in failed["problem"]
    assert held["max_abs"] <= limit
    assert held["moved_back"] == len(found["moved_back"]) > 0
    assert {envelope(compiled)["node_precisions"][name] for name in found["moved_back"]} == {"fp32"}
    assert compiled.precision_effective == "int8"


def test_where_an_engine_has_one_precision_whole_segments_move_back(
    workshop: Any, pair: pathlib.Path, vectors: Calibration
) -> None:
    loose = workshop.compile(
        pair, native_ops=["Relu"], precision=wishes("bf16", calibration=vectors, min_cosine=0.9)
    ).report.as_json()["precision"]
    limit = 0.95 * loose["figures"]["max_abs"]

    found = workshop.compile(
        pair, native_ops=["Relu"], precision=wishes("bf16", calibration=vectors, max_abs=limit)
    ).report.as_json()["precision"]

    assert loose["effective"] == "bf16"
    assert found["moved_back"] in (["first"], ["second"])
    assert sorted(segment["effective"] for segment in found["segments"]) == ["bf16", "fp32"]
    assert found["effective"] == "bf16+fp32"


def test_a_budget_that_no_precision_meets_leaves_float32_engines(
    workshop: Any, pair: pathlib.Path, vectors: Calibration, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        compiled = workshop.compile(pair, precision=wishes("int8", calibration=vectors, min_cosine=1.0))

    found = compiled.report.as_json()["precision"]
    assert (compiled.engine, compiled.precision_effective) == ("openvino", "fp32")
    assert (found["effective"], found["figures"]) == ("fp32", None)
    assert {trial["code"] for trial in found["tried"]} == {"INACCURATE"}
    assert "No precision below fp32 stays inside the accuracy budget" in caplog.text


def test_without_samples_generated_inputs_judge(workshop: Any, pair: pathlib.Path) -> None:
    compiled = workshop.compile(pair, precision=wishes("bf16", calibration=Calibration()))

    assert compiled.report.as_json()["precision"]["figures"]["samples"] == 2


@pytest.mark.parametrize(("there", "judged"), [(3, 3), (9, 9), (10, 2), (40, 8)])
def test_few_samples_are_all_judged(
    there: int, judged: int, workshop: Any, pair: pathlib.Path, vectors: Calibration, in_process: Any
) -> None:
    np.savez(str(vectors.data), x=np.random.default_rng(9).normal(size=(there, 1, 4)).astype(np.float32))

    compiled = workshop.compile(
        pair, engine="reference", worker=in_process, precision=wishes("fp16", calibration=vectors)
    )

    assert compiled.report.precision["figures"]["samples"] == judged


def test_samples_to_judge_on_are_not_calibrated_with(digits: pathlib.Path) -> None:
    inputs = specs(Graph.of(load_model(digits)).inputs)
    every = [feeds["image"] for feeds in CalibrationDataset(SAMPLES).feeds(inputs)]

    share = [feeds["image"] for feeds in CalibrationShare(SAMPLES).feeds(inputs)]

    assert CalibrationShare(SAMPLES).count(inputs) == len(share) == 160
    np.testing.assert_array_equal(np.stack(share), np.stack([a for i, a in enumerate(every) if i % 5 != 4]))


@pytest.fixture
def write_measure(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a module of the user's own and make it importable."""

    def write(module: str, text: str) -> None:
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    return write


def test_a_measure_of_the_users_own_can_refuse(
    workshop: Any, pair: pathlib.Path, vectors: Calibration, in_process: Any, write_measure: Any
) -> None:
    write_measure("own_measure", "def never(expected, actual):\n    return False\n")

    asked = wishes("int8", calibration=vectors, metric="own_measure:never")
    compiled = workshop.compile(pair, precision=asked, worker=in_process)

    assert compiled.precision_effective == "fp32"
    assert "own_measure:never gives -1" in compiled.report.as_json()["precision"]["tried"][0]["problem"]


def test_a_measure_of_the_users_own_is_asked_again_each_time(
    workshop: Any, pair: pathlib.Path, vectors: Calibration, in_process: Any, write_measure: Any, tmp_path: pathlib.Path
) -> None:
    write_measure("strict_measure", "limit = 0\ndef judge(expected, actual):\n    return limit == 0\n")
    asked = wishes("int8", calibration=vectors, metric="strict_measure:judge")
    cache = EngineCache(tmp_path / "cache", 2**20)

    before = workshop.compile(pair, precision=asked, worker=in_process, cache=cache)
    importlib.import_module("strict_measure").limit = 1
    after = workshop.compile(pair, precision=asked, worker=in_process, cache=cache)

    assert (before.precision_effective, after.precision_effective) == ("int8", "fp32")


# The fastest


class Clock:
    """A worker that tells given times, and given figures, instead of measuring."""

    def __init__(self, inner: Any, times: Mapping[str, float], max_abs: float = 0.0) -> None:
        self._inner = inner
        self._times = times
        self._max_abs = max_abs

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "measure_engines":
            return {s: {name: [self._times[name]] * 3 for name in engines} for s, engines in args[3].items()}
        if function.__name__ == "measure_accuracy":
            return Figures(cosine=1.0, top1_agreement=1.0, max_abs=self._max_abs, samples=1)
        return self._inner.call(function, timeout_s, *args, **kwargs)


@pytest.mark.parametrize(("ms", "expected"), [(1.0, "int8"), (1.99, "fp32"), (3.0, "fp32")])
def test_auto_takes_what_is_clearly_faster(
    workshop: Any, pair: pathlib.Path, vectors: Calibration, ms: float, expected: str
) -> None:
    clock = Clock(workshop.worker, {"fp32": 2.0, "int8": ms, "bf16": 9.0, "fp16": 9.0})

    compiled = workshop.compile(pair, worker=clock, precision=wishes("auto", calibration=vectors))

    assert compiled.precision_effective == expected
    assert envelope(compiled)["precision_asked"] == "auto"
    measured = [
        trial["measured_ms"] for trial in compiled.report.as_json()["precision"]["tried"] if "measured_ms" in trial
    ]
    assert (measured[0]["fp32"], measured[0]["int8"]) == (2.0, ms)


def test_auto_never_leaves_the_budget(workshop: Any, pair: pathlib.Path, vectors: Calibration) -> None:
    clock = Clock(workshop.worker, {"fp32": 2.0, "int8": 0.1}, max_abs=9.0)

    compiled = workshop.compile(pair, worker=clock, precision=wishes("auto", calibration=vectors, max_abs=1.0))

    assert compiled.precision_effective == "fp32"


class TuningClock:
    """A worker by which the first of two engines makes the model faster, and the second one slower."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "measure_segments":
            fast, slow = {"engine": [0.1] * 3, "native": [1.0] * 3}, {"engine": [2.0] * 3, "native": [1.0] * 3}
            return {"segment_0": fast, "segment_1": slow}
        if function.__name__ == "measure_candidates":
            times = {(): 2.0, ("segment_0",): 1.1, ("segment_0", "segment_1"): 2.1}
            return {name: [times[tuple(segments)]] * 3 for name, segments in args[1].items()}
        return self._inner.call(function, timeout_s, *args, **kwargs)


def test_what_tuning_leaves_keeps_its_precision(workshop: Any, pair: pathlib.Path, vectors: Calibration) -> None:
    compiled = workshop.compile(
        pair,
        worker=TuningClock(workshop.worker),
        native_ops=["Relu"],
        tune=True,
        precision=wishes("int8", calibration=vectors, min_cosine=0.9),
    )

    assert [(n.node, n.code) for n in compiled.report.native] == [("middle", "USER_EXCLUDED"), ("second", "NOT_FASTER")]
    assert envelope(compiled)["node_precisions"] == {"first": "int8"}
    assert compiled.precision_effective == "int8"


# The cache


def test_a_second_compilation_neither_searches_nor_builds(
    workshop: Any, pair: pathlib.Path, vectors: Calibration, in_process: Any, tmp_path: pathlib.Path
) -> None:
    cache, asked = EngineCache(tmp_path / "cache", 10**9), wishes("int8", calibration=vectors, min_cosine=0.9)
    first = workshop.compile(pair, cache=cache, precision=asked)

    second = workshop.compile(pair, cache=cache, precision=asked, worker=in_process)

    assert (first.engines_built, second.engines_built) == (2, 0)
    assert not {"build", "calibrate_to", "measure_accuracy"} & set(in_process.calls)
    assert second.report.as_json()["precision"] == first.report.as_json()["precision"]
    assert envelope(second) == envelope(first)


def test_other_samples_are_another_search(
    workshop: Any, pair: pathlib.Path, vectors: Calibration, in_process: Any, tmp_path: pathlib.Path
) -> None:
    cache, asked = EngineCache(tmp_path / "cache", 10**9), wishes("int8", calibration=vectors, min_cosine=0.9)
    workshop.compile(pair, cache=cache, precision=asked)
    np.savez(str(vectors.data), x=np.random.default_rng(9).normal(size=(40, 1, 4)).astype(np.float32))

    workshop.compile(pair, cache=cache, precision=asked, worker=in_process)

    assert {"build", "calibrate_to", "measure_accuracy"} <= set(in_process.calls)


# Wishes that can't be met


def test_a_model_that_is_quantized_already_keeps_its_scales(workshop: Any, caplog: pytest.LogCaptureFixture) -> None:
    text = """g (float[1,4] x) => (float[1,4] y) <float s = {0.1}, uint8 z = {128}, float[4,4] w> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, w)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    weights = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    model.graph.initializer.extend([weights])

    with caplog.at_level(logging.WARNING):
        compiled = workshop.compile(workshop.write(model), precision=wishes("int8", calibration=Calibration()))

    assert "is quantized already, so it keeps its own scales" in caplog.text
    assert compiled.report.as_json()["precision"]["quantized_already"] is True
    assert compiled.precision_effective == "int8"


@pytest.mark.parametrize(
    ("engine", "asked", "message"),
    [
        ("reference", wishes("int8"), "The engine reference has no int8; it has fp16, fp32. Ask for one of these."),
        ("reference", wishes("fp32", "op=Relu:bf16"), "The engine reference has no bf16"),
        ("native", wishes("fp16"), "Native execution computes in the model's own types, not in fp16"),
        ("openvino", wishes("int8", calibration=Calibration()), "int8 needs calibration: give samples"),
        ("openvino", wishes("fp32", "op=Relu:int8", calibration=Calibration()), "int8 needs calibration"),
    ],
)
def test_a_precision_that_can_not_be_had_is_an_error(
    workshop: Any, pair: pathlib.Path, engine: str, asked: PrecisionOptions, message: str
) -> None:
    with pytest.raises(PrecisionError, match=message) as caught:
        workshop.compile(pair, engine=engine, precision=asked)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("flags", "asked", "sentence"),
    [
        ({"fpu", "sse2"}, "int8", "no 8-bit dot products (VNNI or AMX)"),
        ({"fpu", "sse2"}, "bf16", "no bfloat16 instructions"),
        ({"fpu", "sse2", "avx512_vnni", "avx512_bf16"}, "int8", ""),
        ({"fpu", "sse2", "avx512_vnni", "avx512_bf16"}, "bf16", ""),
    ],
)
def test_a_precision_without_use_on_this_processor_is_told(
    workshop: Any,
    pair: pathlib.Path,
    vectors: Calibration,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    flags: set[str],
    asked: str,
    sentence: str,
) -> None:
    monkeypatch.setattr("engines.precision_choice.processor_flags", lambda: frozenset(flags))

    with caplog.at_level(logging.WARNING):
        workshop.compile(pair, precision=wishes(asked, calibration=vectors, min_cosine=0.9))

    told = [record.message for record in caplog.records if record.name == "engines.precision_choice"]
    assert [sentence in message for message in told] == ([True] if sentence else [])


def test_a_rule_about_an_unknown_operator_is_an_error(workshop: Any, pair: pathlib.Path) -> None:
    with pytest.raises(UnknownOptionError, match="precision rule: 'Sofmax'"):
        workshop.compile(pair, precision=wishes("bf16", "op=Sofmax:fp32"))


def test_a_measure_that_there_is_not_is_told_before_anything_is_built(
    workshop: Any, pair: pathlib.Path, in_process: Any
) -> None:
    with pytest.raises(MetricError, match="'no_such_module:f' can't be used: it can't be imported"):
        workshop.compile(pair, precision=wishes("bf16", metric="no_such_module:f"), worker=in_process)
    assert "build" not in in_process.calls


def test_ranges_of_another_model_are_refused(
    workshop: Any, pair: pathlib.Path, digits: pathlib.Path, vectors: Calibration, tmp_path: pathlib.Path
) -> None:
    from_elsewhere = tmp_path / "ranges.json"
    workshop.worker.call(calibrate_to, 60.0, pair, vectors, from_elsewhere)

    with pytest.raises(CalibrationTableError, match="was made from another model"):
        workshop.compile(digits, precision=wishes("int8", calibration=Calibration(ranges=from_elsewhere)))
