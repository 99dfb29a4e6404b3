"""A repository of Triton, served, and asked by Triton's clients."""

from __future__ import annotations

import json

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from tritonclient.utils import shared_memory

from tests.serving.conftest import Eventually, Running, given, refusal
from tests.serving.rest.conftest import LENGTH, call
from tests.serving.triton.conftest import UNSERVABLE
from trtnode.protos import ModelInferRequest
from trtnode.serving.service.rpc_table import SERVICE_NAME

IMAGE = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)


def in_http(name: str, array: np.ndarray, datatype: str, *, binary: bool = True) -> triton_http.InferInput:
    one = triton_http.InferInput(name, list(array.shape), datatype)
    one.set_data_from_numpy(array, binary_data=binary)
    return one


def test_image_client_finds_format_dims_and_one_output_and_gets_labels(served: Running) -> None:
    metadata = served.client.get_model_metadata("images")
    config = served.client.get_model_config("images").config
    (tensor,) = config.input
    wanted = triton.InferRequestedOutput("mean", class_count=2)

    answer = served.client.infer("images", [given("x", IMAGE)], outputs=[wanted]).as_numpy("mean")

    assert (config.max_batch_size, list(tensor.dims), len(config.output)) == (4, [3, 4, 4], 1)
    assert tensor.format == triton.model_config_pb2.ModelInput.FORMAT_NCHW
    assert [list(one.shape) for one in (*metadata.inputs, *metadata.outputs)] == [[-1, 3, 4, 4], [-1, 3]]
    assert [[str(one, "utf-8") for one in row] for row in answer] == [
        ["39.500000:2:blue", "23.500000:1:green"],
        ["87.500000:2:blue", "71.500000:1:green"],
    ]


def test_shapes_of_clients_become_those_of_the_file_and_back(
    served: Running, web: triton_http.InferenceServerClient
) -> None:
    flat = served.client.infer("flat", [given("x", IMAGE.reshape(2, 48))]).as_numpy("mean")
    images = web.infer("images", [in_http("x", IMAGE, "FP32")]).as_numpy("mean")

    assert flat.shape == (2, 3, 1, 1)
    assert np.array_equal(images, flat.reshape(2, 3))
    assert refusal(lambda: served.client.infer("flat", [given("x", IMAGE)]))[0] == "INVALID_ARGUMENT"


def test_an_optional_input_may_be_absent(served: Running) -> None:
    a, k = np.array([1, 2], np.float32), np.array([5], np.float32)
    config = served.client.get_model_config("adder").config

    assert served.client.infer("adder", [given("a", a)], "2").as_numpy("sum").tolist() == [2, 3]
    assert served.client.infer("adder", [given("a", a), given("k", k)]).as_numpy("sum").tolist() == [6, 7]
    assert [(one.name, one.optional) for one in config.input] == [("a", False), ("k", True)]
    assert config.parameters["note"].string_value == "kept"
    assert [one.count for one in config.instance_group] == [2]


@pytest.mark.parametrize("name", UNSERVABLE)
def test_a_file_that_contradicts_its_configuration_is_refused(
    name: str, served: Running, eventually: Eventually
) -> None:
    reasons: dict[str, str] = {}

    def is_tried() -> bool:
        reasons.update({one.name: one.reason for one in served.client.get_model_repository_index().models})
        return bool(reasons[name])

    eventually(is_tried)

    assert UNSERVABLE[name] in reasons[name]


def test_timeouts_of_requests_count_only_where_the_configuration_allows_them(served: Running) -> None:
    policies = {
        name: served.client.get_model_config(name).config.dynamic_batching.default_queue_policy
        for name in ("flat", "batched")
    }

    assert [policies[name].allow_timeout_override for name in ("flat", "batched")] == [True, False]


def test_model_control_unloads_and_loads_with_either_kind_of_settings(served: Running) -> None:
    client = served.client

    client.unload_model("plain")
    assert not client.is_model_ready("plain")
    client.load_model("plain")
    assert client.is_model_ready("plain")
    client.load_model("numbers", config='{"instances": 2}')
    assert client.get_model_config("numbers").config.instance_group[0].count == 2
    triton_config = {
        "input": [{"name": "i", "data_type": "TYPE_INT64", "dims": ["2"]}],
        "instanceGroup": [{"count": 3}],
    }
    client.load_model("numbers", config=json.dumps(triton_config))
    config = client.get_model_config("numbers").config
    assert (list(config.input[0].dims), config.instance_group[0].count) == ([2], 3)
    client.load_model("numbers", config=json.dumps({"max_batch_size": 4, "warmup": 1}))
    assert client.get_model_config("numbers").config.max_batch_size == 4
    client.load_model("numbers")
    assert list(client.get_model_config("numbers").config.input[0].dims) == [3]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ('{"sequence_batching": {"iterative_sequence": true}}', "iterative_sequence: each request has one answer here"),
        (
            '{"sequence_batching": {"state": [{"initial_state": [{"data_file": "/etc/passwd"}]}]}}',
            "a request can't name files of the server",
        ),
        ('{"max_batch_size": "many"}', "config: "),
        ('{"input": [{"nane": "x"}]}', 'no field named "nane"'),
        ('{"name": "other"}', "config: name: is 'other'; leave it out, or write 'plain'"),
        ('{"max_batch_size": -1}', "config: max_batch_size: should be at least 0"),
        ('{"model_operations": {"op_library_filename": ["x.so"]}}', "a request can't name files of the server"),
        ('{"output": [{"name": "sum", "label_filename": "/etc/passwd"}]}', "a request can't name files of the server"),
        ('{"max_batch_sise": 1}', "max_batch_sise can't be set by a request"),
        ('{"version_policy": {"specific": {"versions": ["0"]}}}', "config: version_policy: should be greater"),
    ],
)
def test_settings_that_cannot_be_had_leave_the_model_as_it_is(config: str, sentence: str, served: Running) -> None:
    code, text = refusal(lambda: served.client.load_model("plain", config=config))

    assert (code, sentence in text) == ("INVALID_ARGUMENT", True), text
    assert served.client.is_model_ready("plain")


def test_shared_memory_carries_inputs_and_outputs(served: Running) -> None:
    x = np.array([[1, 2]], np.float32)
    region = shared_memory.create_shared_memory_region("data", "/trtnode_triton_test", 16)
    try:
        shared_memory.set_shared_memory_region(region, [x])
        served.client.register_system_shared_memory("data", "/trtnode_triton_test", 16)
        source, target = triton.InferInput("x", [1, 2], "FP32"), triton.InferRequestedOutput("y")
        source.set_shared_memory("data", 8)
        target.set_shared_memory("data", 8, 8)
        answer = served.client.infer("batched", [source], outputs=[target])
        status = served.client.get_system_shared_memory_status()
        assert answer.get_output("y").shape == [1, 2]
        assert shared_memory.get_contents_as_numpy(region, np.float32, [1, 2], 8).tolist() == [[-1, -2]]
        assert [one.byte_size for one in status.regions.values()] == [16]
        served.client.unregister_system_shared_memory()
    finally:
        shared_memory.destroy_shared_memory_region(region)


def test_the_server_has_the_configured_name(served: Running) -> None:
    assert served.client.get_server_metadata().name == "triton"
    assert json.loads(call(served, "/v2")[2])["name"] == "triton"


def raw(served: Running, model: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    headers = {LENGTH: "0", "Content-Type": "application/octet-stream"}
    return call(served, f"/v2/models/{model}/infer", body, **headers)


@pytest.mark.parametrize(
    ("model", "body", "shape", "result"),
    [
        ("numbers", np.array([1, 2, 3], np.int64).tobytes(), [3], np.array([-1, -2, -3], np.int64).tobytes()),
        ("batched", np.array([1, 2], np.float32).tobytes(), [1, 2], np.array([-1, -2], np.float32).tobytes()),
        ("adder", np.array([1, 2], np.float32).tobytes(), [2], np.array([2, 3], np.float32).tobytes()),
        ("one_text", b"a text", [1], b"\x06\0\0\0a text"),
    ],
)
def test_a_body_may_be_the_data_of_the_only_input(
    model: str, body: bytes, shape: list[int], result: bytes, served: Running
) -> None:
    _, headers, content = raw(served, model, body)

    size = int(headers[LENGTH.lower()])
    (output,) = json.loads(content[:size])["outputs"]
    assert (output["shape"], content[size:]) == (shape, result)


@pytest.mark.parametrize(
    ("model", "body", "sentence"),
    [
        ("numbers", bytes(16), "has 16 bytes of data, but shape [3] of type INT64 takes 24"),
        ("batched", bytes(4), "but shape [1, 2] of type FP32 takes 8"),
        ("adder", bytes(6), "has 6 bytes of data, but shape [1] of type FP32 takes 4"),
        ("numbers", b"", "the body is no inference request"),
        ("text", b"a text", "has shape [-1]; a body without JSON is one element of BYTES, for shape [1] in dims"),
    ],
)
def test_data_of_another_size_is_refused(model: str, body: bytes, sentence: str, served: Running) -> None:
    status, _, content = raw(served, model, body)

    assert (status, sentence in json.loads(content)["error"]) == (400, True), content


def test_null_stands_for_what_may_be_left_out(served: Running) -> None:
    tensor = {"name": "i", "shape": [3], "datatype": "INT64", "data": [1, 2, 3], "parameters": {"content_type": None}}
    for empty in ({"outputs": None}, {"outputs": [{"name": "j", "parameters": None}]}):
        body = {"id": None, "parameters": None, "inputs": [tensor], **empty}
        content = call(served, "/v2/models/numbers/infer", json.dumps(body).encode())[2]
        assert json.loads(content)["outputs"][0]["data"] == [-1, -2, -3], content
    body = {"inputs": [{**tensor, "parameters": None}], "parameters": {"binary_data_output": None}}
    assert call(served, "/v2/models/numbers/infer", json.dumps(body).encode())[0] == 200


def test_an_output_that_is_named_twice_is_refused(served: Running, web: triton_http.InferenceServerClient) -> None:
    x = np.ones((1, 3, 4, 4), np.float32)
    ours = [triton.InferRequestedOutput("mean")] * 2
    code, text = refusal(lambda: served.client.infer("images", [given("x", x)], outputs=ours))
    over_http = [triton_http.InferRequestedOutput("mean")] * 2

    assert (code, "names 2 outputs" in text) == ("INVALID_ARGUMENT", True)
    with pytest.raises(triton_http.InferenceServerException, match="names 2 outputs"):
        web.infer("images", [in_http("x", x, "FP32")], outputs=over_http)


def test_errors_begin_with_the_texts_that_clients_of_triton_look_for(served: Running) -> None:
    numbers = [given("i", np.array([1, 2, 3], np.int64))]
    client = served.client
    client.unload_model("plain")
    missing = triton.InferInput("i", [3], "INT64")
    missing.set_shared_memory("none", 24)
    texts = [
        refusal(lambda: client.infer("none", numbers)),
        refusal(lambda: client.infer("numbers", numbers, "7")),
        refusal(lambda: client.get_model_metadata("plain")),
        refusal(lambda: client.infer("numbers", [missing])),
        refusal(lambda: client.register_system_shared_memory("a", "/none_of_these", 8)),
    ]
    client.load_model("plain")

    beginnings = [
        "Request for unknown model: 'none' is not found",
        "Request for unknown model: 'numbers' version 7 is not found",
        "Request for unknown model: 'plain' has no available versions",
        "Unable to find shared memory region: 'none'",
        "Unable to open shared memory region: '/none_of_these'",
    ]
    assert [(text[: len(start)], code) for (code, text), start in zip(texts, beginnings, strict=True)] == [
        *((start, "NOT_FOUND") for start in beginnings[:4]),
        (beginnings[4], "INTERNAL"),
    ]


def test_settings_of_log_and_traces_have_the_keys_of_triton_and_may_be_written_back(
    served: Running, web: triton_http.InferenceServerClient
) -> None:
    log, trace = web.get_log_settings(), web.get_trace_settings()

    assert set(log) == {
        *("log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"),
    }
    assert set(trace) == {"trace_file", "trace_level", "trace_rate", "trace_count", "log_frequency", "trace_mode"}
    assert web.update_log_settings(log) == log
    assert set(served.client.get_trace_settings().settings) == set(trace)


def test_an_answer_has_no_parameters_that_its_model_did_not_set(served: Running) -> None:
    numbers = [given("i", np.array([1, 2, 3], np.int64))]

    answer = served.client.infer("numbers", numbers, request_id="7", parameters={"own": 3})

    assert dict(answer.get_response().parameters) == {}
    assert answer.get_response().id == "7"


@pytest.mark.parametrize("depth", [3, 200, 500])
def test_data_may_be_nested_as_deep_as_triton_reads_it(depth: int, served: Running) -> None:
    nested = "[" * depth + "1, 2, 3" + "]" * depth
    beside = f'"note": {nested}, "inputs": [{{"name": "i", "shape": [3], "datatype": "INT64", "data": {nested}}}]'

    status, _, content = call(served, "/v2/models/numbers/infer", f"{{{beside}}}".encode())

    assert (status, json.loads(content).get("outputs", [{}])[0].get("data")) == (200, [-1, -2, -3]), content


@pytest.mark.parametrize("count", [4, 2**31])
def test_more_classes_than_there_are_give_all_with_their_labels(
    count: int, served: Running, web: triton_http.InferenceServerClient
) -> None:
    over_grpc = [triton.InferRequestedOutput("mean", class_count=count)]
    over_http = [triton_http.InferRequestedOutput("mean", class_count=count)]

    answers = [
        served.client.infer("images", [given("x", IMAGE)], outputs=over_grpc).as_numpy("mean"),
        web.infer("images", [in_http("x", IMAGE, "FP32")], outputs=over_http).as_numpy("mean"),
    ]

    assert [answer.shape for answer in answers] == [(2, 3), (2, 3)]
    assert [answer[0, 2] for answer in answers] == [b"7.500000:0:red"] * 2


def test_a_long_message_of_many_strings_is_refused_with_the_number_there_may_be(served: Running) -> None:
    strings = [b"ab"] * 40_000
    request = ModelInferRequest(model_name="text")
    request.inputs.add(name="t", datatype="BYTES", shape=[len(strings)]).contents.bytes_contents.extend(strings)
    with grpc.insecure_channel(served.address) as channel:
        infer = channel.unary_unary(f"/{SERVICE_NAME}/ModelInfer")
        with pytest.raises(
            grpc.RpcError, match="of more than 16384 fields, such as elements of bytes_contents"
        ) as refused:
            infer(request.SerializeToString())

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_model_is_told_with_ten_names_at_most(served: Running) -> None:
    text = refusal(lambda: served.client.infer("nobody", [given("x", IMAGE)]))[1]

    assert "is not found; this server has adder, batched, flat, images, " in text
    assert text.endswith("and 3 more")
