"""REST V2 with tritonclient's HTTP clients: every type of tensor, every way to send it, and the other calls."""

from __future__ import annotations

import asyncio
import gc
import importlib
import pathlib
import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from tests.serving.conftest import Adders, Eventually, FakeExecutable, Running, Starter, StartFake, refusal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # gevent's, at import
    triton = importlib.import_module("tritonclient.http")
    triton_aio = importlib.import_module("tritonclient.http.aio")
# A fixture closes clients; the collector, which may run in any thread, must not: gevent fails there.
del triton.InferenceServerClient.__del__

ROW = np.array([[1, 2, 3]], np.float32)
DTYPES = {
    "BOOL": ("BOOL", np.bool_),
    "UINT8": ("UINT8", np.uint8),
    "UINT16": ("UINT16", np.uint16),
    "UINT32": ("UINT32", np.uint32),
    "UINT64": ("UINT64", np.uint64),
    "INT8": ("INT8", np.int8),
    "INT16": ("INT16", np.int16),
    "INT32": ("INT32", np.int32),
    "INT64": ("INT64", np.int64),
    "FLOAT16": ("FP16", np.float16),
    "BFLOAT16": ("BF16", ml_dtypes.bfloat16),
    "FLOAT": ("FP32", np.float32),
    "DOUBLE": ("FP64", np.float64),
    "STRING": ("BYTES", np.object_),
}
VALUES = {"BOOL": [[1, 0, 1]], "STRING": [["one", "", "drei €"]]}
IN_JSON = [model for model in DTYPES if model not in ("FLOAT16", "BFLOAT16")]

Connect = Callable[[Running], triton.InferenceServerClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Open clients of servers, and close them."""
    clients: list[Any] = []

    def open_client(running: Running) -> Any:
        clients.append(triton.InferenceServerClient(running.http.removeprefix("http://"), concurrency=4))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Connect, shared: Running) -> triton.InferenceServerClient:
    return connect(shared)


@pytest.fixture
def region() -> Iterator[pathlib.Path]:
    """A shared memory object of 4096 bytes."""
    path = pathlib.Path("/dev/shm", f"trtnode-test-{uuid.uuid4().hex}")
    path.write_bytes(bytes(4096))
    yield path
    path.unlink()


def tensor(name: str, array: np.ndarray, datatype: str = "FP32", *, binary: bool = True) -> Any:
    one = triton.InferInput(name, array.shape, datatype)
    one.set_data_from_numpy(array, binary_data=binary)
    return one


def rows(*, binary: bool = True) -> list[Any]:
    return [tensor(name, ROW, binary=binary) for name in "ab"]


def sample(model: str) -> tuple[str, np.ndarray]:
    datatype, dtype = DTYPES[model]
    return datatype, np.array(VALUES.get(model, [[1, 0, 120]]), dtype)


def texts(array: np.ndarray) -> list[Any]:
    return [[one.decode() if isinstance(one, bytes) else one for one in row] for row in array.tolist()]


@pytest.mark.parametrize("model", DTYPES)
def test_every_type_travels_both_ways_behind_the_json(client: triton.InferenceServerClient, model: str) -> None:
    datatype, x = sample(model)

    result = client.infer(model, [tensor("x", x, datatype)])

    assert texts(result.as_numpy("y")) == x.tolist()
    assert result.get_output("y")["datatype"] == datatype
    assert "binary_data_size" in result.get_output("y")["parameters"]


@pytest.mark.parametrize("model", IN_JSON)
def test_every_type_but_half_floats_travels_both_ways_in_json(client: triton.InferenceServerClient, model: str) -> None:
    datatype, x = sample(model)
    in_json = triton.InferRequestedOutput("y", binary_data=False)

    result = client.infer(model, [tensor("x", x, datatype, binary=False)], outputs=[in_json])

    assert result.as_numpy("y").tolist() == x.tolist()
    assert result.get_output("y")["data"] == x.ravel().tolist()


@pytest.mark.parametrize("model", ["FLOAT16", "BFLOAT16"])
def test_half_floats_are_refused_in_json_before_anything_runs(
    client: triton.InferenceServerClient, shared: Running, model: str
) -> None:
    datatype, x = sample(model)
    before = client.get_inference_statistics(model)["model_stats"][0]["execution_count"]

    in_json = triton.InferRequestedOutput("y", binary_data=False)
    code, text = refusal(lambda: client.infer(model, [tensor("x", x, datatype)], outputs=[in_json]))

    assert code == "400"
    assert text == f"output 'y' of model {model!r} has type {datatype}, which JSON can't carry; ask for it with the " \
        "parameter 'binary_data'"  # fmt: skip
    assert client.get_inference_statistics(model)["model_stats"][0]["execution_count"] == before


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (5, 0), (64, 3)])
@pytest.mark.parametrize("model", ["FLOAT", "STRING"])
def test_tensors_of_any_size_travel(client: triton.InferenceServerClient, model: str, shape: tuple[int, int]) -> None:
    datatype, dtype = DTYPES[model]
    x = np.full(shape, "text" if datatype == "BYTES" else 7, dtype)

    result = client.infer(model, [tensor("x", x, datatype)]).as_numpy("y")

    assert result.shape == shape
    assert texts(result) == x.tolist()


def test_large_tensors_travel_as_they_are(client: triton.InferenceServerClient) -> None:
    x = np.random.default_rng(0).standard_normal((500, 1003)).astype(np.float32)

    assert np.array_equal(client.infer("FLOAT", [tensor("x", x)]).as_numpy("y"), x)


@pytest.mark.parametrize("form", ["in", "behind"])
def test_outputs_come_as_asked_in_the_order_of_the_model(client: triton.InferenceServerClient, form: str) -> None:
    binary = form == "behind"
    outputs = [triton.InferRequestedOutput("size", binary), triton.InferRequestedOutput("sum", not binary)]

    result = client.infer("two", rows(), outputs=outputs, request_id="request 7")

    answer = result.get_response()
    assert [output["name"] for output in answer["outputs"]] == ["sum", "size"]
    assert [("data" in output) for output in answer["outputs"]] == [binary, not binary]
    assert result.as_numpy("sum").tolist() == [[2, 4, 6]]
    assert result.as_numpy("size").tolist() == [1, 3]
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("request 7", "two", "1")


def test_inputs_may_be_in_json_and_behind_it(client: triton.InferenceServerClient) -> None:
    inputs = [tensor("a", ROW, binary=False), tensor("b", ROW)]

    assert client.infer("two", inputs).as_numpy("sum").tolist() == [[2, 4, 6]]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_requests_may_be_compressed(client: triton.InferenceServerClient, algorithm: str) -> None:
    result = client.infer(
        "two", rows(), request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )

    assert result.as_numpy("sum").tolist() == [[2, 4, 6]]


def test_the_asyncio_client_works(shared: Running) -> None:
    async def talk() -> list[list[float]]:
        async with triton_aio.InferenceServerClient(shared.http.removeprefix("http://")) as client:
            assert await client.is_server_live()
            assert (await client.get_model_metadata("two"))["name"] == "two"
            results = await asyncio.gather(*(client.infer("two", rows()) for _ in range(8)))
            return [result.as_numpy("sum")[0].tolist() for result in results]

    assert asyncio.run(talk()) == [[2, 4, 6]] * 8
    gc.collect()  # aiohttp leaves its connections to the collector, whose warnings belong to this test


def test_a_server_and_its_models_are_described_as_over_grpc(
    client: triton.InferenceServerClient, shared: Running
) -> None:
    grpc_metadata = shared.client.get_server_metadata()

    metadata = client.get_server_metadata()
    model = client.get_model_metadata("two", "1")
    config = client.get_model_config("two")

    assert (metadata["name"], metadata["extensions"]) == (grpc_metadata.name, list(grpc_metadata.extensions))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert (model["name"], model["versions"], model["platform"]) == ("two", ["1"], "onnxruntime_onnx")
    assert model["inputs"][0] == {"name": "a", "datatype": "FP32", "shape": [-1, 3]}
    assert (config["name"], config["max_batch_size"], config["backend"]) == ("two", 0, "onnxruntime")
    assert config["output"][2] == {"name": "size", "data_type": "TYPE_INT64", "dims": [2]} | config["output"][2]
    assert config["instance_group"][0]["kind"] == "KIND_CPU"


def test_a_model_that_is_not_there_is_not_ready_and_not_found(client: triton.InferenceServerClient) -> None:
    assert client.is_model_ready("two")
    assert not client.is_model_ready("none")
    assert not client.is_model_ready("two", "9")
    assert refusal(lambda: client.get_model_metadata("none"))[0] == "404"
    assert refusal(lambda: client.get_model_config("none"))[0] == "404"
    assert refusal(lambda: client.get_inference_statistics("none"))[0] == "400"


def test_priority_and_timeout_reach_the_queue(
    start_fake: StartFake, connect: Connect, fake: FakeExecutable, eventually: Eventually
) -> None:
    client = connect(start_fake("batching: {priority_levels: 2}"))
    x = tensor("x", np.zeros(1, np.float32))
    assert client.is_server_live()  # the first connection takes longer than the client waits for its greenlet
    fake.gate.clear()
    running = client.async_infer("fake", [x])
    eventually(lambda: fake.running == 1)  # the second must not run first

    code, text = refusal(lambda: client.infer("fake", [x], priority=1, timeout=1000))

    fake.gate.set()
    assert (code, "the request waited" in text) == ("503", True)
    assert running.get_result().as_numpy("y").tolist() == [1]


def test_models_are_listed_loaded_and_unloaded(start: Starter, connect: Connect, adders: Adders) -> None:
    adders.write("m/1/model.onnx", 1)
    running = start(
        f"- {{name: m, path: {adders.folder}/m, engine: native, warmup: 0}}\n", server="admin: {repository: true}"
    )
    client = connect(running)

    def ask() -> float:
        return float(client.infer("m", [tensor("x", np.zeros((1, 1), np.float32))]).as_numpy("y")[0, 0])

    assert client.get_model_repository_index() == [{"name": "m", "version": "1", "state": "READY", "reason": ""}]
    adders.write("m/1/model.onnx", 2)
    client.load_model("m")
    assert ask() == 2
    client.load_model("m", config="{}", files={"file:7/model.onnx": adders.content(7)})
    assert ask() == 7
    client.unload_model("m")
    assert refusal(ask)[0] == "404"
    code, text = refusal(lambda: client.load_model("none"))
    assert (code, "Request for unknown model: 'none' is not found" in text) == ("500", True)


def test_tensors_travel_in_shared_memory(with_memory: Running, connect: Connect, region: pathlib.Path) -> None:
    client = connect(with_memory)
    region.write_bytes(ROW.tobytes().ljust(4096, b"\0"))
    client.register_system_shared_memory("r", f"/{region.name}", 4096)
    x, y = triton.InferInput("x", [1, 3], "FP32"), triton.InferRequestedOutput("y")
    x.set_shared_memory("r", ROW.nbytes)
    y.set_shared_memory("r", ROW.nbytes, offset=1024)

    result = client.infer("FLOAT", [x], outputs=[y])

    assert client.get_system_shared_memory_status("r") == [
        {"name": "r", "key": f"/{region.name}", "offset": 0, "byte_size": 4096}
    ]
    assert result.get_output("y")["parameters"] == {
        "shared_memory_region": "r", "shared_memory_offset": 1024, "shared_memory_byte_size": ROW.nbytes
    }  # fmt: skip
    assert region.read_bytes()[1024 : 1024 + ROW.nbytes] == ROW.tobytes()
    client.unregister_system_shared_memory("r")
    assert client.get_system_shared_memory_status() == []
    assert refusal(lambda: client.infer("FLOAT", [x]))[0] == "404"


def test_there_is_no_cuda_shared_memory(with_memory: Running, connect: Connect) -> None:
    client = connect(with_memory)

    code, text = refusal(lambda: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 64))

    assert (code, "no CUDA shared memory" in text) == ("501", True)
    assert client.get_cuda_shared_memory_status() == []
    client.unregister_cuda_shared_memory()


def test_changes_of_the_server_are_off_by_default(client: triton.InferenceServerClient) -> None:
    calls = {
        "RepositoryModelLoad": lambda: client.load_model("two"),
        "RepositoryModelUnload": lambda: client.unload_model("two"),
        "SystemSharedMemoryRegister": lambda: client.register_system_shared_memory("r", "/r", 64),
        "LogSettings": lambda: client.update_log_settings({"log_info": False}),
        "TraceSetting": lambda: client.update_trace_settings(settings={"trace_rate": "7"}),
    }

    for rpc, call in calls.items():
        code, text = refusal(call)
        assert code == "403"
        assert text.startswith(f"{rpc} changes the server, which is off; server.admin.")
    assert client.get_log_settings()["log_info"] in (True, False)
    assert client.get_trace_settings()["trace_level"]


def test_both_ports_give_the_same_answer(client: triton.InferenceServerClient, shared: Running) -> None:
    inputs = [triton_grpc.InferInput(name, ROW.shape, "FP32") for name in "ab"]
    for one in inputs:
        one.set_data_from_numpy(ROW)

    over_grpc, over_http = shared.client.infer("two", inputs), client.infer("two", rows())

    for name in ("sum", "product", "size"):
        assert np.array_equal(over_grpc.as_numpy(name), over_http.as_numpy(name))
