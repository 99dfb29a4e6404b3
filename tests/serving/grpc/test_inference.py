"""ModelInfer against a real server: what it answers, and which status each fault of a request gets."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import FakeExecutable, Running, Starter, StartFake
from tests.serving.grpc.conftest import triton_inputs
from trtnode.engines.errors import ExecutionError
from trtnode.protos import ModelInferRequest, ModelInferResponse

ROW = np.array([[1, 2, 3]], np.float32)

Infer = Callable[[ModelInferRequest], ModelInferResponse]


@pytest.fixture(scope="module")
def infer(shared: Running) -> Infer:
    """Send a request exactly as it is, without a client library that would correct it."""
    channel = grpc.insecure_channel(shared.address)
    yield channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelInferResponse.FromString,
    )
    channel.close()


def request(**changes) -> ModelInferRequest:
    """A good request to the model ``two``, with fields replaced."""
    tensor = {"datatype": "FP32", "shape": [1, 3]}
    fields = {
        "model_name": "two",
        "inputs": [{"name": "a", **tensor}, {"name": "b", **tensor}],
        "raw_input_contents": [ROW.tobytes(), ROW.tobytes()],
    }
    return ModelInferRequest(**{**fields, **changes})


def wire_inputs(a: dict | None = None, b: dict | None = None, *more: dict) -> list[dict]:
    tensor = {"datatype": "FP32", "shape": [1, 3]}
    return [{"name": "a", **tensor, **(a or {})}, {"name": "b", **tensor, **(b or {})}, *more]


def test_a_good_request_is_answered_raw(infer: Infer) -> None:
    response = infer(request(id="request 7"))

    assert (response.model_name, response.model_version, response.id) == ("two", "1", "request 7")
    assert [(out.name, out.datatype, list(out.shape)) for out in response.outputs] == [
        ("sum", "FP32", [1, 3]),
        ("product", "FP32", [1, 3]),
        ("size", "INT64", [2]),
    ]
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [2, 4, 6]
    assert np.frombuffer(response.raw_output_contents[2], np.int64).tolist() == [1, 3]


def test_typed_contents_are_answered_raw_too(infer: Infer) -> None:
    contents = {"contents": {"fp32_contents": [1, 2, 3]}}

    response = infer(request(inputs=wire_inputs(contents, contents), raw_input_contents=[]))

    assert np.frombuffer(response.raw_output_contents[1], np.float32).tolist() == [1, 4, 9]


def test_inputs_may_come_in_any_order(infer: Infer) -> None:
    tensor = {"datatype": "FP32", "shape": [1, 3]}
    inputs = [{"name": "b", **tensor}, {"name": "a", **tensor}]

    response = infer(request(inputs=inputs))

    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [2, 4, 6]


@pytest.mark.parametrize("version", ["", "1", "01"])
def test_the_only_version_is_the_latest(infer: Infer, version: str) -> None:
    assert infer(request(model_version=version)).model_version == "1"


def test_requested_outputs_come_in_the_models_order(infer: Infer) -> None:
    response = infer(request(outputs=[{"name": "size"}, {"name": "sum"}]))

    assert [out.name for out in response.outputs] == ["sum", "size"]
    assert len(response.raw_output_contents) == 2


def test_unknown_parameters_are_the_models_own_and_ignored(infer: Infer) -> None:
    assert infer(request(parameters={"colour": {"string_param": "red"}, "priority": {"uint64_param": 1}})).outputs


def test_what_perf_analyzer_asks_of_every_model_is_accepted(infer: Infer) -> None:
    assert infer(request(parameters={"triton_enable_empty_final_response": {"bool_param": True}})).outputs


def test_a_batch_of_no_rows_is_answered(infer: Infer) -> None:
    empty = {"shape": [0, 3]}

    response = infer(request(inputs=wire_inputs(empty, empty), raw_input_contents=[b"", b""]))

    assert list(response.outputs[0].shape) == [0, 3]
    assert response.raw_output_contents[0] == b""


def fault(name: str, message: str, *, code: str = "INVALID_ARGUMENT", **changes: Any) -> Any:
    """Return a case: the changes that spoil a request, and what the client is told."""
    return pytest.param(changes, code, message, id=name)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        fault("unknown-model", "Request for unknown model: 'three' is not found", code="NOT_FOUND", model_name="three"),
        fault("empty-model-name", "Request for unknown model: '' is not found", code="NOT_FOUND", model_name=""),
        fault(
            "unknown-version",
            "Request for unknown model: 'two' version 2 is not found; it has 1",
            code="NOT_FOUND",
            model_version="2",
        ),
        fault(
            "version-zero",
            "Request for unknown model: 'two' version 0 is not found",
            code="NOT_FOUND",
            model_version="0",
        ),
        fault("version-is-no-number", "'one' is not a number", model_version="one"),
        fault("negative-version", "'-1' is not a number", model_version="-1"),
        fault("unknown-input", "model 'two' has no input 'c'; it has 'a', 'b'", inputs=wire_inputs({"name": "c"})),
        fault("duplicate-input", "input 'b' of model 'two' stands twice", inputs=wire_inputs({"name": "b"})),
        fault("missing-input", "input 'b' of model 'two' is missing", inputs=wire_inputs()[:1]),
        fault("none", "input 'a' of model 'two' is missing", inputs=[], raw_input_contents=[]),
        fault(
            "datatype",
            "input 'a' of model 'two' has type 'FP64', but takes FP32",
            inputs=wire_inputs({"datatype": "FP64"}),
        ),
        fault(
            "datatype-that-does-not-exist",
            "input 'a' of model 'two' has type 'float', but takes FP32",
            inputs=wire_inputs({"datatype": "float"}),
        ),
        fault("rank", "input 'a' of model 'two' has shape [3], but takes [-1, 3]", inputs=wire_inputs({"shape": [3]})),
        fault(
            "fixed-dimension",
            "input 'a' of model 'two' has shape [1, 4], but takes [-1, 3]",
            inputs=wire_inputs({"shape": [1, 4]}),
        ),
        fault(
            "negative-dimension",
            "input 'a' of model 'two' has shape [-1, 3]; no dimension may be negative",
            inputs=wire_inputs({"shape": [-1, 3]}),
        ),
        fault(
            "byte-count",
            "input 'b' of model 'two' has 11 bytes of data, but shape [1, 3] of type FP32 takes 12",
            raw_input_contents=[ROW.tobytes(), ROW.tobytes()[:-1]],
        ),
        fault(
            "too-few-raw",
            "input 'b' of model 'two' has no data: raw_input_contents has 1 items for 2 inputs",
            raw_input_contents=[ROW.tobytes()],
        ),
        fault(
            "raw-and-typed",
            "input 'a' of model 'two' has typed contents in a request with raw_input_contents",
            inputs=wire_inputs({"contents": {"fp32_contents": [1, 2, 3]}}),
        ),
        fault(
            "contents-of-another-type",
            "input 'a' of model 'two' has ['int_contents'], but type FP32 goes into fp32_contents",
            inputs=wire_inputs({"contents": {"int_contents": [1, 2, 3]}}),
            raw_input_contents=[],
        ),
        fault(
            "too-few-elements",
            "input 'a' of model 'two' has fewer elements than shape [1, 3] takes (3)",
            inputs=wire_inputs({"contents": {"fp32_contents": [1, 2]}}),
            raw_input_contents=[],
        ),
        fault(
            "no-data-at-all", "input 'a' of model 'two' has fewer elements", inputs=wire_inputs(), raw_input_contents=[]
        ),
        fault(
            "unknown-output",
            "model 'two' has no output 'total'; it has 'sum', 'product', 'size'",
            outputs=[{"name": "sum"}, {"name": "total"}],
        ),
        fault(
            "reserved-parameter",
            "the parameter 'triton_magic' is reserved",
            parameters={"triton_magic": {"bool_param": True}},
        ),
        fault(
            "input-in-shared-memory",
            "shared memory is off; server.admin.shared_memory allows it",
            code="UNIMPLEMENTED",
            inputs=wire_inputs(
                {
                    "parameters": {
                        "shared_memory_region": {"string_param": "r"},
                        "shared_memory_byte_size": {"int64_param": 12},
                    }
                }
            ),
        ),
        fault(
            "no-class",
            "the parameter 'classification' of output 'sum' should be a number from 1",
            outputs=[{"name": "sum", "parameters": {"classification": {"int64_param": 0}}}],
        ),
        fault(
            "number-as-sequence-start",
            "the parameter 'sequence_start' should be a bool_param",
            parameters={"sequence_start": {"int64_param": 1}},
        ),
        fault(
            "surplus-raw-contents",
            "raw_input_contents has 3 items, but 2 inputs take one",
            raw_input_contents=[ROW.tobytes()] * 3,
        ),
    ],
)
def test_faults_of_a_request_have_their_status_and_say_what_is_wrong(
    infer: Infer, changes: dict[str, Any], code: str, message: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(request(**changes))

    assert caught.value.code() is grpc.StatusCode[code]
    assert message in caught.value.details()
    assert "Traceback" not in caught.value.details()


def test_a_fault_with_a_huge_name_still_reaches_the_client(infer: Infer) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(request(model_name="m" * 100_000))

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert len(caught.value.details()) < 2000


def test_sizes_that_disagree_only_with_each_other_are_the_requests_fault(infer: Infer) -> None:
    other = np.ones((2, 3), np.float32).tobytes()

    with pytest.raises(grpc.RpcError) as caught:
        infer(request(inputs=wire_inputs(None, {"shape": [2, 3]}), raw_input_contents=[ROW.tobytes() * 3, other]))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_method_that_is_not_there_is_unimplemented(shared: Running) -> None:
    with grpc.insecure_channel(shared.address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/NoSuchMethod")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"")

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


SAMPLES = {
    "BOOL": np.array([[True, False]]),
    "UINT8": np.array([[0, 255]], np.uint8),
    "UINT16": np.array([[0, 65535]], np.uint16),
    "UINT32": np.array([[0, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[0, 2**64 - 1]], np.uint64),
    "INT8": np.array([[-128, 127]], np.int8),
    "INT16": np.array([[-(2**15), 2**15 - 1]], np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1]], np.int32),
    "INT64": np.array([[-(2**63), 2**63 - 1]], np.int64),
    "FLOAT16": np.array([[1.5, np.inf]], np.float16),
    "BFLOAT16": np.array([[1.5, -np.inf]], ml_dtypes.bfloat16),
    "FLOAT": np.array([[1.5, np.nan]], np.float32),
    "DOUBLE": np.array([[1e300, -0.0]]),
    "STRING": np.array([["é\0z".encode(), b""]], object),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_tritonclient_gets_back_what_it_sent_in_every_datatype(shared: Running, name: str) -> None:
    result = shared.client.infer(name, triton_inputs(x=SAMPLES[name])).as_numpy("y")

    sent = SAMPLES[name]
    np.testing.assert_array_equal(result, sent.astype(np.float32) if name == "BFLOAT16" else sent)


def test_concurrent_requests_to_an_engine_get_their_own_answers(start: Starter, models: pathlib.Path) -> None:
    running = start(f"- {{name: two, path: {models}/two.onnx, engine: openvino, instances: 3}}")

    assert running.client.get_model_metadata("two").platform == "openvino_onnx"
    assert all(ask_in_parallel(running, 300))


def ask_in_parallel(running: Running, count: int) -> list[bool]:
    def ask(number: int) -> bool:
        row = np.full((1 + number % 3, 3), number, np.float32)
        result = running.client.infer("two", triton_inputs(a=row, b=row), request_id=str(number))
        return result.get_response().id == str(number) and np.array_equal(result.as_numpy("sum"), 2 * row)

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, range(count)))


def test_a_run_that_fails_is_internal_and_the_server_goes_on(
    start_fake: StartFake, fake: FakeExecutable, caplog: pytest.LogCaptureFixture
) -> None:
    running = start_fake()
    inputs = triton_inputs(x=np.zeros(1, np.float32))
    fake.error = ExecutionError("onnxruntime: division by zero")

    with pytest.raises(InferenceServerException) as caught:
        running.client.infer("fake", inputs)
    fake.error = None

    assert caught.value.status() == "StatusCode.INTERNAL"
    assert caught.value.message() == "onnxruntime: division by zero"
    assert "ModelInfer failed: onnxruntime: division by zero" in caplog.text
    assert running.client.infer("fake", inputs).as_numpy("y").tolist() == [1]
