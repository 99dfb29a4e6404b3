"""REST requests in JSON as a plain client writes them, and the answers to those that are wrong."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import numpy as np
import pytest

from tests.serving.conftest import Running
from tests.serving.rest.conftest import INFER, LENGTH, call, given, refusal, request, with_tensors


def behind(name: str, size: Any = 12) -> dict[str, Any]:
    return given(name, data=None, parameters={"binary_data_size": size})


def status_after(running: Running, path: str = INFER) -> int:
    """A good request, to see that the server goes on."""
    return call(running, path, request())[0]


def test_plain_json_is_enough(shared: Running) -> None:
    row = {"shape": [1, 3], "datatype": "FP32", "data": [[1, 2.5, 3]]}
    body = json.dumps({"inputs": [{"name": "a", **row}, {"name": "b", **row}], "outputs": [{"name": "sum"}]})

    with urllib.request.urlopen(f"{shared.http}/v2/models/two/infer", body.encode()) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        assert json.load(answer) == {
            "model_name": "two",
            "model_version": "1",
            "outputs": [{"name": "sum", "datatype": "FP32", "shape": [1, 3], "data": [2.0, 5.0, 6.0]}],
        }


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param(b"", "the body is no inference request: Invalid JSON: EOF", id="empty"),
        pytest.param(b"nonsense", "Invalid JSON", id="no-json"),
        pytest.param(request()[:-2], "Invalid JSON: EOF", id="cut-short"),
        pytest.param(b"[" * 100_000, "Invalid JSON: recursion limit", id="too-deep"),
        pytest.param(b"\xff\xfe{}", "Invalid JSON", id="no-utf-8"),
        pytest.param(b"[]", "Input should be an object", id="no-object"),
        pytest.param(b"{}", "inputs: Field required", id="no-inputs"),
        pytest.param(b'{"inputs": null}', "inputs: Input should be a valid array", id="null-inputs"),
        pytest.param(b'{"inputs": [7]}', "inputs.0: Input should be an object", id="input-no-object"),
        pytest.param(request(given(name=None)), "inputs.0.name: Field required", id="no-name"),
        pytest.param(request(given(shape=None)), "inputs.0.shape: Field required", id="no-shape"),
        pytest.param(request(given(datatype=None)), "inputs.0.datatype: Field required", id="no-datatype"),
        pytest.param(request(given(shape=[1.5, 3])), "inputs.0.shape.0: Input should be a valid integer", id="half"),
        pytest.param(request(given(shape="1,3")), "inputs.0.shape: Input should be a valid array", id="text-shape"),
        pytest.param(request(id=7), "id: Input should be a valid string", id="number-as-id"),
        pytest.param(request(parameters=[1]), "parameters: Input should be an object", id="parameters"),
        pytest.param(request(outputs=["sum"]), "outputs.0: Input should be an object", id="output-as-text"),
        pytest.param(request(given("a")), "input 'b' of model 'two' is missing", id="missing-input"),
        pytest.param(request(given("c")), "model 'two' has no input 'c'; it has 'a', 'b'", id="unknown-input"),
        pytest.param(request(given("a"), given("a")), "stands twice in the request", id="twice"),
        pytest.param(request(given(datatype="FP64")), "has type 'FP64', but takes FP32", id="other-type"),
        pytest.param(request(given(shape=[1, 4])), "has shape [1, 4], but takes [-1, 3]", id="other-shape"),
        pytest.param(request(given(shape=[-1, 3])), "no dimension may be negative", id="negative"),
        pytest.param(request(given(shape=[10**30, 3])), "fewer elements than shape", id="huge"),
        pytest.param(request(given(data=[1, 2])), "fewer elements than shape [1, 3] takes (3)", id="fewer"),
        pytest.param(request(given(data=[1, 2, 3, 4])), "more elements than shape [1, 3] takes (3)", id="more"),
        pytest.param(request(given(data=[[1, 2], 3])), 'of these types: "int", "list"', id="mixed-nesting"),
        pytest.param(request(given(data=["1", 2, 3])), 'of these types: "int", "str"', id="text-as-number"),
        pytest.param(request(given(data=[True, 2, 3])), 'of these types: "bool", "int"', id="truth-as-number"),
        pytest.param(request(given(data=[None, 2, 3])), 'of these types: "NoneType", "int"', id="null-as-number"),
        pytest.param(request(given(data=[1e39, 2, 3])), "outside the range of FP32", id="too-large"),
        pytest.param(request(given(data=[10**400, 2, 3])), "outside the range of FP32", id="far-too-large"),
        pytest.param(request(given(data=None)), "should have either 'data' or the parameter", id="no-data"),
        pytest.param(request(outputs=[{"name": "none"}]), "has no output 'none'", id="unknown-output"),
        pytest.param(request(parameters={"timeout": -1}), "'timeout' should be a number from 0", id="timeout"),
        pytest.param(request(parameters={"priority": 2**70}), "'priority' should be a number", id="priority"),
        pytest.param(request(parameters={"triton_x": 1}), "'triton_x' is reserved", id="reserved"),
        pytest.param(request(parameters={"binary_data_output": 1}), "should be true or false", id="flag"),
        pytest.param(
            request(given(parameters={"binary_data_size": 12})), "should have either 'data' or", id="two-sources"
        ),
        pytest.param(
            request(given(data=None, parameters={"shared_memory_region": "r"})), "shared_memory_byte_size", id="memory"
        ),
        pytest.param(
            request(parameters={"x": 10**400}), "the parameter 'x' is a larger number", id="parameter-too-large"
        ),
    ],
)  # fmt: skip
def test_a_request_at_fault_is_told_what_is_wrong(shared: Running, body: bytes, told: str) -> None:
    status, text = refusal(shared, INFER, body)

    assert status == 400
    assert told in text
    assert status_after(shared) == 200


@pytest.mark.parametrize(
    ("model", "datatype", "data"),
    [
        ("INT8", "INT8", [128]),
        ("UINT8", "UINT8", [-1]),
        ("INT64", "INT64", [2**63]),
        ("UINT64", "UINT64", [2**64]),
    ],
)
def test_integers_outside_their_range_are_refused(shared: Running, model: str, datatype: str, data: list[int]) -> None:
    body = request(given("x", shape=[1, 1], datatype=datatype, data=data))

    status, text = refusal(shared, f"/v2/models/{model}/infer", body)

    assert (status, text) == (400, f"input 'x' of model {model!r} has an element outside the range of {datatype}")


@pytest.mark.parametrize("number", ["NaN", "1.5", "Infinity", "-Infinity"])
def test_only_floats_take_fractions_and_nan(shared: Running, number: str) -> None:
    def body(datatype: str) -> bytes:
        return request(given("x", shape=[1, 1], datatype=datatype, data=["N"])).replace(b'"N"', number.encode())

    status, _, text = call(shared, "/v2/models/DOUBLE/infer", body("FP64"))
    refused, told = refusal(shared, "/v2/models/INT32/infer", body("INT32"))

    assert (status, f'"data": [{number}]' in text.decode()) == (200, True)
    assert (refused, 'of these types: "float"' in told) == (400, True)


def test_the_largest_and_smallest_integers_travel_in_json(shared: Running) -> None:
    for model, data in {"INT64": [-(2**63), 2**63 - 1], "UINT64": [0, 2**64 - 1]}.items():
        status, _, text = call(
            shared, f"/v2/models/{model}/infer", request(given("x", shape=[1, 2], datatype=model, data=data))
        )

        assert status == 200
        assert json.loads(text)["outputs"][0]["data"] == data


@pytest.mark.parametrize(
    ("sizes", "tensors", "told"),
    [
        pytest.param((12, 16), 24, "has binary_data_size 16, but 12 bytes follow the JSON for it", id="beyond-the-end"),
        pytest.param((12, 8), 24, "has 8 bytes of data, but shape [1, 3] of type FP32 takes 12", id="too-small"),
        pytest.param((24, 12), 36, "has 24 bytes of data, but shape [1, 3] of type FP32 takes 12", id="too-large"),
        pytest.param((12, 12), 30, "6 bytes follow the last tensor", id="left-over"),
        pytest.param((12, -12), 24, "has binary_data_size -12", id="negative"),
        pytest.param((12, 2**70), 24, "has binary_data_size", id="astronomic"),
        pytest.param((12, "12"), 24, "has binary_data_size '12'", id="text"),
        pytest.param((12, True), 24, "has binary_data_size True", id="truth"),
        pytest.param((12, 12), 0, "has binary_data_size 12, but 0 bytes follow", id="no-tensors"),
    ],
)
def test_sizes_that_lie_are_refused(shared: Running, sizes: tuple[Any, Any], tensors: int, told: str) -> None:
    body, headers = with_tensors(request(behind("a", sizes[0]), behind("b", sizes[1])), bytes(tensors))

    status, text = refusal(shared, INFER, body, **headers)

    assert status == 400
    assert told in text
    assert status_after(shared) == 200


@pytest.mark.parametrize(
    ("length", "told"),
    [
        pytest.param("100000", "bytes, but inference-header-content-length is 100000", id="beyond-the-end"),
        pytest.param("10", "Invalid JSON: EOF", id="too-short"),
        pytest.param("0", "a body without JSON is the data of one input", id="nothing"),
        pytest.param("-1", "should be a number of bytes, not '-1'", id="negative"),
        pytest.param("many", "should be a number of bytes, not 'many'", id="no-number"),
        pytest.param("9" * 5000, "should be a number of bytes, not '9999", id="astronomic"),
    ],
)
def test_a_json_length_that_lies_is_refused(shared: Running, length: str, told: str) -> None:
    body, _ = with_tensors(request(behind("a"), behind("b")))

    status, text = refusal(shared, INFER, body, **{LENGTH: length})

    assert (status, told in text) == (400, True)


@pytest.mark.parametrize("padding", range(17))
def test_tensors_may_begin_at_any_byte(shared: Running, padding: int) -> None:
    body, headers = with_tensors(
        request(behind("a"), behind("b"), id="x" * padding, parameters={"binary_data_output": True})
    )

    status, facts, answer = call(shared, INFER, body, **headers)

    assert status == 200
    assert np.frombuffer(answer[int(facts[LENGTH.lower()]) :][:12], np.float32).tolist() == [2, 4, 6]


def test_a_classification_stands_in_json(shared: Running) -> None:
    status, _, text = call(shared, INFER, request(outputs=[{"name": "sum", "parameters": {"classification": 2}}]))

    assert status == 200
    assert json.loads(text)["outputs"] == [
        {"name": "sum", "datatype": "BYTES", "shape": [2], "data": ["6.000000:2", "4.000000:1"]}
    ]


def test_bad_text_in_raw_bytes_is_refused(shared: Running) -> None:
    text = request(given("x", shape=[1, 1], datatype="BYTES", data=None, parameters={"binary_data_size": 6}))
    body, headers = with_tensors(text, b"\2\0\0\0\xff\xff")

    status, told = refusal(shared, "/v2/models/STRING/infer", body, **headers)

    assert (status, "not UTF-8 text" in told) == (400, True)
