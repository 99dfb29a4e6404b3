"""Variants of one model, through a real server."""

from __future__ import annotations

import json
import pathlib
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton

from tests.serving.conftest import READY_S, Adders, Eventually, Running, Starter, given
from trtnode.engines.errors import ExecutionError
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.executables import variants

TWO = "variants: [{path: big.onnx, quality: 0.9}, {path: small.onnx, quality: 0.8}]"
GENEROUS, STRICT = "latency_target_ms: 600000", "latency_target_ms: 0.000001"
ADMIN = "admin: {repository: true}"


@pytest.fixture(autouse=True)
def brief_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "SECONDS", 0.05)


@pytest.fixture
def entry(adders: Adders) -> Callable[..., str]:
    """Write two variants, which add 1 and 2; return an entry of servable.yaml."""
    adders.write("big.onnx", 1)
    adders.write("small.onnx", 2)

    def write(*keys: str) -> str:
        return "".join(f"  {line}\n" for line in ("name: m", "engine: native", *(keys or (TWO, GENEROUS)))).replace(
            "  ", "- ", 1
        )

    return write


def named(client: triton.InferenceServerClient) -> str:
    """The variant that a response names."""
    return variant_of(client.infer("m", [zero()]))


def variant_of(result: triton.InferResult) -> str:
    parameters = result.get_response().parameters
    return str(parameters["trtnode_variant"].string_param)


def zero() -> triton.InferInput:
    return given("x", np.zeros((1, 1), np.float32))


def told(running: Running) -> list[dict[str, Any]]:
    parameters = running.client.get_model_config("m").config.parameters
    found: list[dict[str, Any]] = json.loads(parameters["variants"].string_value)
    return found


def read(url: str, body: bytes | None = None) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
        return answer.read().decode()


def problems(tmp_path: pathlib.Path, models: str) -> str:
    path = tmp_path / "servable.yaml"
    path.write_text(f"models:\n{models}")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return str(caught.value)


@pytest.mark.parametrize("batching", ["null", "{max_batch_size: 4}"])
def test_the_best_quality_that_holds_the_target_answers(
    start: Starter, adders: Adders, entry: Callable[..., str], batching: str
) -> None:
    reversed_order = "variants: [{path: small.onnx, quality: 0.8}, {path: big.onnx, quality: 0.9, name: large}]"

    running = start(entry(reversed_order, GENEROUS, f"batching: {batching}"))

    assert adders.ask(running.client) == 1
    assert named(running.client) == "large"
    assert [(one["name"], one["answers"], one["holds_target"]) for one in told(running)] == [
        ("large", True, True),
        ("small", False, True),
    ]


def test_where_none_holds_the_target_the_fastest_answers_and_the_log_says_so(
    start: Starter, entry: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    running = start(entry(TWO, STRICT), cache="{dir: cache}")

    fastest = min(told(running), key=lambda one: one["p95_ms"])
    assert named(running.client) == fastest["name"]
    assert "no variant holds 1e-06 ms; the fastest answers" in caplog.text


def test_every_port_names_the_variant_and_tells_its_figures(start: Starter, entry: Callable[..., str]) -> None:
    running = start(entry())
    body = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0]}]}

    response = json.loads(read(f"{running.http}/v2/models/m/infer", json.dumps(body).encode()))
    (model,) = json.loads(read(f"{running.http}/status.json"))["models"]
    metrics = read(f"{running.http}/metrics")

    assert response["parameters"] == {"trtnode_variant": "big"}
    assert [one["name"] for one in model["variants"]] == ["big", "small"]
    assert all(0 < one["p50_ms"] <= one["p95_ms"] for one in model["variants"])
    labels = '{model="m",quality="0.9",variant="big",version="1"}'
    assert f"trtnode_model_variant{labels} 1.0" in metrics
    assert f"trtnode_variant_latency_seconds{labels}" in metrics


def test_the_page_of_a_model_explains_the_variant_that_was_chosen(start: Starter, entry: Callable[..., str]) -> None:
    running = start(entry(TWO.replace("0.8", "0.95"), GENEROUS))

    assert "small.onnx" in read(f"{running.http}/models/m/versions/1/explain")


def test_what_was_measured_is_kept_for_the_next_start(
    start: Starter, entry: Callable[..., str], monkeypatch: pytest.MonkeyPatch, adders: Adders
) -> None:
    measurements: list[Sequence[str]] = []
    time_all = variants.time_in_turn

    def counted(calls: Mapping[str, Callable[[], object]], *, seconds: float, brief: bool) -> Mapping[str, list[float]]:
        measurements.append(list(calls))
        return time_all(calls, seconds=seconds, brief=brief)

    monkeypatch.setattr("trtnode.serving.executables.variants.time_in_turn", counted)
    cache = "{dir: cache}"
    first, second = start(entry(), cache=cache), start(entry(), cache=cache)
    adders.write("small.onnx", 3)
    start(entry(), cache=cache)

    assert told(first) == told(second)
    assert measurements == [["big", "small"]] * 2


def test_the_best_answers_where_none_runs_on_zeros(
    start: Starter, entry: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ExecutionError("zeros make no sense")

    monkeypatch.setattr(variants, "time_in_turn", fail)

    running = start(entry(TWO, STRICT), cache="{dir: cache}")

    assert named(running.client) == "big"
    assert [(one["name"], one["answers"], one["holds_target"]) for one in told(running)] == [
        ("big", True, False),
        ("small", False, False),
    ]
    assert "Variants can't be measured: zeros make no sense" in caplog.text


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        pytest.param(
            "g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }",
            "input 'x' is float32[n, 1] in variant 'big', but float32[N, 2] in variant 'other'",
            id="shape",
        ),
        pytest.param(
            "g (float[N, 1] x) => (double[N, 1] y) { y = Cast <to = 11> (x) }",
            "output 'y' is float32[n, 1] in variant 'big', but float64[N, 1] in variant 'other'",
            id="type",
        ),
        pytest.param(
            "g (float[N, 1] z) => (float[N, 1] y) { y = Neg(z) }",
            "input 'x' of variant 'big' is missing in variant 'other'",
            id="name",
        ),
        pytest.param(
            "g (float[N, 1] x) => (float[N, 1] y, float[N, 1] more) { y = Neg(x) more = Abs(x) }",
            "output 'more' of variant 'other' is missing in variant 'big'",
            id="one-more",
        ),
    ],
)
def test_variants_of_other_interfaces_are_refused_with_the_tensor(
    start: Starter, entry: Callable[..., str], adders: Adders, other: str, problem: str
) -> None:
    head = '<ir_version: 8, opset_import: ["": 13]>'
    onnx.save(onnx.parser.parse_model(head + other), adders.folder / "other.onnx")
    two = "variants: [{path: big.onnx, quality: 2}, {path: other.onnx, quality: 1}]"

    running = start(entry(two, GENEROUS), wait=False)

    assert not running.server.wait_ready(READY_S)
    assert problem in str(running.server.failure)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([TWO], "models[0].latency_target_ms: is missing; variants need"),
        (["path: big.onnx", GENEROUS], "models[0].latency_target_ms: has no effect without variants"),
        (["path: big.onnx", TWO, GENEROUS], "models[0]: should have path or variants"),
        (["variants: [{path: big.onnx}]", GENEROUS], "models[0].variants[0].quality: is missing"),
        (["variants: [{path: none.onnx, quality: 1}]", GENEROUS], "models[0].variants[0].path: there is no file"),
        (
            ["variants: [{path: big.onnx, quality: 1}, {path: ./big.onnx, quality: 2}]", GENEROUS],
            "models[0].variants[1].name: variants[0] is called 'big' too",
        ),
        ([TWO, "latency_target_ms: 0"], "models[0].latency_target_ms: should be greater than 0"),
    ],
)
def test_settings_that_contradict_are_named_with_their_field(
    tmp_path: pathlib.Path, entry: Callable[..., str], keys: list[str], problem: str
) -> None:
    assert problem in problems(tmp_path, entry(*keys))


def test_a_version_is_one_of_every_variant(start: Starter, adders: Adders, eventually: Eventually) -> None:
    for variant, constant in (("big", 1), ("small", 2)):
        adders.write(f"{variant}/1/model.onnx", constant)
    folders = "variants: [{path: big, quality: 2}, {path: small, quality: 1}]"
    running = start(f"- {{name: m, engine: native, watch: true, {folders}, {GENEROUS}}}")

    adders.write("big/2/model.onnx", 10)
    adders.write("small/2/model.onnx", 20)

    eventually(lambda: adders.ask(running.client) == 10)
    assert named(running.client) == "big"
    assert list(running.client.get_model_metadata("m").versions) == ["2"]


def test_a_reload_takes_new_files_of_any_variant(start: Starter, adders: Adders, entry: Callable[..., str]) -> None:
    running = start(entry(TWO.replace("0.8", "0.95"), GENEROUS), server=ADMIN)
    before = adders.ask(running.client)

    adders.write("small.onnx", 20)
    running.client.load_model("m")

    assert (before, adders.ask(running.client)) == (2, 20)


def test_files_of_a_request_replace_all_variants(start: Starter, adders: Adders, entry: Callable[..., str]) -> None:
    running = start(entry(), server=ADMIN)

    running.client.load_model("m", config="{}", files={"file:1/model.onnx": adders.content(7)})

    assert adders.ask(running.client) == 7
    assert "variants" not in running.client.get_model_config("m").config.parameters


def test_the_best_variant_answers_alone_until_engines_are_built(
    start: Starter, adders: Adders, entry: Callable[..., str]
) -> None:
    running = start(entry(TWO, GENEROUS).replace("native", "openvino"), server="startup: native")

    assert (adders.ask(running.client), named(running.client)) == (1, "big")
