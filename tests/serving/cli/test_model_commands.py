"""The commands explain, compile and run, as a user types them."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

from clock import Clock, table
from ensembles import ENSEMBLES, X, configured, one_by_one, written
from model_texts import parse
from stateful_models import COUNTER
from trtnode.engines.build.subprocess_worker import SpareWorkers, SubprocessWorker
from trtnode.serving.cli.program import main

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
DIGITS, TEST_SET = EXAMPLES / "digits.onnx", EXAMPLES / "test.npz"
SCANS = EXAMPLES.with_name("scans") / "scans.onnx"
REPORT_KEYS = {
    "model", "engine", "nodes", "supported_nodes", "engine_nodes", "minimum_segments", "segments", "native",
    "unknown_shapes", "splits", "crossing_tensors", "boundary_bytes", "seconds", "memory",
}  # fmt: skip
EnginesTake = Callable[[float], Clock]
"""Sets the milliseconds that the next measurements find with engines; natively they find 1."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def engines_take(choosing_engines: None, worker: SubprocessWorker, monkeypatch: pytest.MonkeyPatch) -> EnginesTake:
    def found(milliseconds: float) -> Clock:
        clock = Clock(worker, {}, table({"": 1.0, "0": milliseconds}))
        monkeypatch.setattr("trtnode.engines.build.context.BUILDERS", SpareWorkers(lambda: clock))
        return clock

    return found


def compile_digits(output: pathlib.Path, cache: pathlib.Path, *options: str) -> int:
    return main(["compile", str(DIGITS), "-o", str(output), "--cache", str(cache), *options])


def test_explain_tells_segments_reasons_and_splits(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", str(DIGITS), "--native-ops", "Relu"])

    printed = capsys.readouterr().out
    assert code == 0
    assert "USER_EXCLUDED" in printed
    assert "conv1 > relu1 > conv2" in printed


def test_explain_tells_what_state_a_server_can_keep(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(parse(COUNTER), tmp_path / "counter.onnx")

    assert main(["explain", str(tmp_path / "counter.onnx"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert main(["explain", str(tmp_path / "counter.onnx")]) == 0

    assert report["state"] == {"pairs": [{"input": "state", "output": "stateN", "first": ["batch", 1]}], "left": []}
    told = "With `state: auto`, a server keeps 1 tensor of state: state from stateN, at first float32[batch, 1]."
    assert told in capsys.readouterr().out


def test_explain_says_what_only_a_compilation_can_tell(
    cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    native = ("--native-ops", "Relu,Softmax")
    asked = ["explain", str(DIGITS), "--cache", str(cache), *native]

    codes = [main(asked), compile_digits(tmp_path / "compiled.onnx", cache, *native), main(asked)]

    printed = " ".join(capsys.readouterr().out.split())
    assert codes == [0, 0, 0]
    assert printed.index("Only compile can tell which engines are refused") < printed.index(
        "Segments are as compile has built and checked them here, with the same options."
    )


def test_explain_tells_many_causes_that_differ_in_names_alone_as_one(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaled = " ".join(
        f"b{i} = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (a) y{i} = {('Neg', 'Abs')[i % 2]}(b{i})"
        for i in range(5)
    )
    outputs = ", ".join(f"float[A, B] y{i}" for i in range(5))
    model = f"""<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]> g (float[N, 3] x) => ({outputs})
    <int64[2] seven = {{7, 3}}> {{ a = Reshape(x, seven) {scaled} }}"""
    onnx.save(onnx.parser.parse_model(model), tmp_path / "scaled.onnx")

    main(["explain", str(tmp_path / "scaled.onnx"), "--engine", "openvino", "--no-cache"])

    (line,) = [line for line in capsys.readouterr().out.splitlines() if "UNKNOWN_SHAPE" in line]
    assert line.startswith("UNKNOWN_SHAPE: 5 nodes (Abs, Neg), such as ")


def test_explain_prints_the_first_30_segments_and_counts_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    body = " ".join(f"v{i + 1} = {'Neg' if i % 2 else 'Relu'}(v{i})" for i in range(65))
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[3] v0) => (float[3] v65) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "chain.onnx")

    main(["explain", str(tmp_path / "chain.onnx"), "--native-ops", "Neg"])

    printed = capsys.readouterr().out
    assert "segment_29 " in printed
    assert "segment_30 " not in printed.split("... and 3 more; --json has all of them.")[0]


def test_explain_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(DIGITS), "--engine", "openvino", "--json", "--no-cache"])

    report = json.loads(capsys.readouterr().out)
    assert report.keys() == REPORT_KEYS | {"compiled_before"}
    assert (report["nodes"], report["engine_nodes"], len(report["segments"])) == (10, 10, 1)


@pytest.mark.parametrize(
    ("options", "segments"),
    [
        pytest.param((), 1, id="one-engine"),
        pytest.param(("--native-ops", "Relu"), 4, id="partly-native"),
        pytest.param(("--native-nodes", "*"), 0, id="all-excluded"),
        pytest.param(("--engine-ops", "Conv,BatchNormalization", "--min-segment-nodes", "3"), 0, id="all-too-small"),
        pytest.param(("--engine", "native"), 0, id="native"),
    ],
)
def test_compiled_digits_answer_as_before(
    options: tuple[str, ...], segments: int, cache: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    compiled, results = tmp_path / "compiled.onnx", tmp_path / "results.npz"

    codes = [
        compile_digits(compiled, cache, *options),
        main(["run", str(compiled), "--inputs", str(TEST_SET), "--outputs", str(results)]),
    ]

    samples = np.load(TEST_SET)
    session = onnxruntime.InferenceSession(DIGITS)
    (expected,) = session.run(None, {"image": samples["image"]})
    (plain,) = onnxruntime.InferenceSession(compiled).run(None, {"image": samples["image"]})
    actual = np.load(results)["probabilities"]
    assert codes == [0, 0]
    assert sum(node.op_type == "TrtNode" for node in onnx.load(compiled).graph.node) == segments
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(plain, expected)
    assert (actual.argmax(1) == samples["label"]).mean() >= 0.98


def test_compile_prints_one_json_object_and_builds_nothing_twice(
    cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_digits(tmp_path / "first.onnx", cache)
    capsys.readouterr()

    compile_digits(tmp_path / "second.onnx", cache, "--json")

    facts = json.loads(capsys.readouterr().out)
    assert (facts["engines_built"], facts["engines_cached"]) == (0, 1)
    assert facts["precision"] == {"asked": "fp32", "effective": "fp32"}
    assert facts["report"].keys() == REPORT_KEYS | {"processor_seconds"}
    assert facts["processor_seconds"].keys() >= {"read", "label", "build", "check", "write", "file check", "all"}
    assert facts["file_bytes"] == (tmp_path / "second.onnx").stat().st_size


def test_compile_tells_what_was_measured(
    cache: pathlib.Path, tmp_path: pathlib.Path, engines_take: EnginesTake, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = engines_take(2.0)
    clock.engines, clock.model = {"segment_0": 0.5, "segment_1": 3.0}, table({"": 7.0, "0": 4.0, "01": 6.0})
    compile_digits(tmp_path / "first.onnx", cache, "--native-ops", "MaxPool", "--engine", "openvino")
    printed = capsys.readouterr().out

    compile_digits(tmp_path / "second.onnx", cache, "--native-ops", "MaxPool", "--engine", "openvino", "--json")

    tuning = json.loads(capsys.readouterr().out)["report"]["tuning"]
    assert [c["name"] for c in tuning["candidates"]] == ["all native", "faster engines", "minimum cut"]
    verdict = printed.split("\n\n")[0]
    assert [verdict.count(f"{c['p50_ms']:.3g} ms") for c in tuning["candidates"]] == [1, 1, 1]
    assert "segments of the minimum cut" in printed


def test_compile_measures_by_default_and_explain_knows_the_choice(
    cache: pathlib.Path, tmp_path: pathlib.Path, engines_take: EnginesTake, capsys: pytest.CaptureFixture[str]
) -> None:
    engines_take(2.0)

    compile_digits(tmp_path / "compiled.onnx", cache, "--engine", "openvino")
    printed = capsys.readouterr().out
    main(["explain", str(DIGITS), "--engine", "openvino", "--cache", str(cache)])
    explained = capsys.readouterr().out
    main(["explain", str(DIGITS), "--engine", "openvino", "--cache", str(cache), "--json"])

    report = json.loads(capsys.readouterr().out)
    assert (report["tuning"]["chosen"], report["segments"]) == ("all native", [])
    verdict = "Not faster, measured here: 2 ms with engines instead of 1 ms natively. No engine is kept."
    assert printed.splitlines()[0] == explained.splitlines()[0] == verdict
    assert (printed.count("2 ms"), printed.count("1 ms")) == (1, 1)
    assert "; chosen by a brief measurement." in printed


@pytest.mark.parametrize("option", ["--no-measure", "--all-engines"])
def test_what_was_measured_is_told_of_engines_that_stay_without_measurement(
    option: str, tmp_path: pathlib.Path, engines_take: EnginesTake, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = engines_take(2.0)
    place = [str(SCANS), "--cache", str(tmp_path / "cache")]  # the estimate keeps its engine as well
    main(["compile", *place, "-o", str(tmp_path / "compiled.onnx")])
    capsys.readouterr()

    main(["compile", *place, "-o", str(tmp_path / "compiled.onnx"), option])
    compiled = capsys.readouterr().out.splitlines()
    main(["explain", *place, option])

    verdict = "Not faster, measured here: 2 ms with engines instead of 1 ms natively. They are kept all the same."
    assert compiled[0] == capsys.readouterr().out.splitlines()[0] == verdict
    assert len(clock.asked) == 1


def test_a_remembered_choice_tells_when_and_at_what_load_it_was_made(
    tmp_path: pathlib.Path,
    engines_take: EnginesTake,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engines_take(0.5)
    compile_digits(tmp_path / "compiled.onnx", tmp_path / "cache")
    first = capsys.readouterr().out
    monkeypatch.setattr("trtnode.serving.cli.terminal.report.FRESH", datetime.timedelta())

    main(["explain", str(DIGITS), "--cache", str(tmp_path / "cache")])

    verdict, when = capsys.readouterr().out.splitlines()[:2]
    assert verdict.startswith("Faster, measured here, 2 times (2 to 2): 0.5 ms with engines instead of 1 ms natively.")
    assert re.fullmatch(
        r"Measured on 20\d\d-\d\d-\d\d at \d\d:\d\d UTC, at a load of .*; compile --measure-again forgets it.", when
    )
    assert "at a load of" not in first


def test_a_gain_within_the_margin_is_not_called_faster(
    tmp_path: pathlib.Path, engines_take: EnginesTake, capsys: pytest.CaptureFixture[str]
) -> None:
    engines_take(0.99)

    compile_digits(tmp_path / "compiled.onnx", tmp_path / "cache")

    verdict = "Not clearly faster, measured here: 0.99 ms with engines instead of 1 ms natively. No engine is kept."
    assert capsys.readouterr().out.splitlines()[0] == verdict


@pytest.mark.parametrize(("engines_ms", "code"), [(0.5, 0), (2.0, 1)], ids=["faster", "slower"])
def test_a_compilation_fails_where_no_engine_is_faster_if_it_is_to(
    engines_ms: float, code: int, tmp_path: pathlib.Path, engines_take: EnginesTake, capsys: pytest.CaptureFixture[str]
) -> None:
    engines_take(engines_ms)
    output = tmp_path / "compiled.onnx"

    assert compile_digits(output, tmp_path / "cache", "--fail-if-not-faster", "--json") == code

    said = capsys.readouterr()
    sentence = f"trtnode: --fail-if-not-faster: the measurement keeps no engine. {output} is written all the same.\n"
    assert said.err == (sentence if code else "")
    assert json.loads(said.out)["output"] == str(output)
    assert output.exists()


@pytest.mark.usefixtures("choosing_engines")
@pytest.mark.parametrize(
    "options", [["--no-measure"], ["--all-engines"], ["--engine", "native"], ["--engine", "openvino,tensorrt-rtx"]]
)
def test_to_fail_unless_engines_are_faster_needs_a_measurement(
    options: list[str], cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_digits(tmp_path / "compiled.onnx", cache, "--fail-if-not-faster", *options) == 2

    assert capsys.readouterr().err.startswith("trtnode: --fail-if-not-faster: nothing would be measured. Leave out ")


@pytest.mark.usefixtures("choosing_engines")
def test_compile_claims_no_measurement_where_there_was_none(
    cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_digits(tmp_path / "compiled.onnx", cache, "--engine", "native")

    assert "; nothing was measured." in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("choosing_engines")
@pytest.mark.parametrize(("option", "engines"), [("--no-measure", 0), ("--all-engines", 1)])
def test_nothing_is_measured_where_an_option_says_so(
    option: str, engines: int, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_digits(tmp_path / "compiled.onnx", tmp_path / "cache", option, "--json")

    report = json.loads(capsys.readouterr().out)["report"]
    assert "tuning" not in report
    assert len(report["segments"]) == engines  # the estimate calls it slower


def test_source_that_passes_the_full_check_gives_a_compiled_model_that_does(
    cache: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    compile_digits(tmp_path / "compiled.onnx", cache, "--native-ops", "Relu")

    onnx.checker.check_model(onnx.load(tmp_path / "compiled.onnx"), full_check=True)


def test_run_answers_nan_natively_unless_engines_are_to(tmp_path: pathlib.Path) -> None:
    source, compiled, inputs, outputs = (tmp_path / name for name in ("m.onnx", "c.onnx", "in.npz", "out.npz"))
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }'
    onnx.save(onnx.parser.parse_model(text), source)
    np.savez(inputs, x=np.array([np.nan, 1], np.float32))
    natively, in_engines = [pytest.approx(np.nan, nan_ok=True), -1], [0, -1]

    def answer(compiled_with: Sequence[str], *options: str) -> list[float]:
        main(["compile", str(source), "-o", str(compiled), "--engine", "openvino", *compiled_with])
        main(["run", str(compiled), "--inputs", str(inputs), "--outputs", str(outputs), *options])
        return np.load(outputs)["y"].tolist()

    assert answer([]) == natively
    assert answer([], "--nan", "engine") == in_engines
    assert answer(["--nan", "engine"]) == in_engines
    assert answer(["--nan", "engine"], "--nan", "native") == natively


def test_run_writes_strings_and_sequences(tmp_path: pathlib.Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
        g (string[N] x, float[M] f) => (string[N] y, seq(float[M]) s, float[M] file)
        { y = StringConcat(x, x) s = SequenceConstruct(f, f) file = Relu(f) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    np.savez(tmp_path / "in.npz", x=np.array(["a", "b"]), f=np.array([-1, 2], np.float32))

    files = {"--inputs": "in.npz", "--outputs": "o.npz"}
    options = [word for option, name in files.items() for word in (option, str(tmp_path / name))]

    code = main(["run", str(tmp_path / "model.onnx"), *options])

    results = np.load(tmp_path / "o.npz")
    assert code == 0
    assert results["y"].tolist() == ["aa", "bb"]
    assert results["s/1"].tolist() == [-1, 2]
    assert results["file"].tolist() == [0, 2]


@pytest.mark.usefixtures("choosing_engines")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["explain", "absent.onnx"], 1, "absent.onnx: can't be read", id="missing-model"),
        pytest.param(["compile", str(TEST_SET), "-o", "x.onnx"], 1, "not an ONNX", id="not-onnx"),
        pytest.param(["compile", str(DIGITS), "-o", "absent/x.onnx"], 1, "there is no such folder", id="no-folder"),
        pytest.param(["explain", str(DIGITS), "--native-ops", "Rellu"], 2, "'Rellu' matches nothing", id="unknown-op"),
        pytest.param(["compile", str(DIGITS), "-o", "x", "--precision", "int8"], 2, "needs calibration", id="int8"),
        pytest.param(["run", str(DIGITS), "--inputs", "no.npz", "--outputs", "o"], 1, "no.npz", id="missing-inputs"),
        pytest.param(["run", str(DIGITS), "--inputs", str(DIGITS), "--outputs", "o"], 1, "not an .npz", id="no-npz"),
    ],
)
def test_bad_arguments_end_in_one_sentence(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    actual = main(arguments)

    printed = capsys.readouterr()
    assert actual == code
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_the_folder_of_an_ensemble_is_explained_compiled_and_run_as_one_model(
    cache: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository, page, compiled = tmp_path / "repository", tmp_path / "page.html", tmp_path / "compiled.onnx"
    written(repository, "five")
    np.savez(tmp_path / "in.npz", image=X)

    codes = [main(["explain", str(repository / "five"), "--json", "--html", str(page), "--cache", str(cache)])]
    report = json.loads(capsys.readouterr().out.splitlines()[0])
    options = ("--all-engines", "--no-measure", "--cache", str(cache))
    codes.append(main(["compile", str(repository / "five"), "-o", str(compiled), *options]))
    outputs = ("--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"))
    codes.append(main(["run", str(compiled), *outputs]))

    steps = ["scale", "dense", "dense_2", "dense_3", "softmax"]
    assert codes == [0, 0, 0]
    assert (report["model"], report["steps"], [one["steps"] for one in report["segments"]]) == (
        "five.onnx",
        steps,
        [steps],
    )
    assert page.read_text().count('<path class="step"') == report["nodes"]
    assert all(f"</b> {step}</li>" in page.read_text() for step in steps)
    answer = np.load(tmp_path / "out.npz")["answer"]
    np.testing.assert_allclose(answer, one_by_one(ENSEMBLES["five"], X), rtol=1e-4)


def test_a_folder_of_no_ensemble_or_a_faulty_one_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "three")
    config = tmp_path / "three" / "config.pbtxt"

    codes = [main(["explain", str(tmp_path / "dense")]), main(["compile", str(tmp_path / "dense"), "-o", "x.onnx"])]
    for wrong, right in (('"dens"', '"dense"'), ('"z"', '"x"')):
        config.write_text(configured(ENSEMBLES["three"]).replace(right, wrong))
        codes.append(main(["explain", str(tmp_path / "three")]))

    printed = capsys.readouterr().err
    assert codes == [1, 1, 2, 2]
    assert printed.count("dense: can't be read (it is no regular file, but a folder") == 2
    assert "three/config.pbtxt:10: ensemble_scheduling.step[1].model_name: there is no model 'dens' here" in printed
    assert "three/config.pbtxt:11: ensemble_scheduling.step[1].input_map['z']: 'dense' has no input 'z'" in printed
