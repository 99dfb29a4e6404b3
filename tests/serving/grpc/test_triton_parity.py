"""Behaviour that clients of Triton rely on beyond the protocol, over both ports where both have it."""

from __future__ import annotations

import importlib
import pathlib
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Running, Starter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # gevent's, at import
    importlib.import_module("tritonclient.http")

SCORES = np.array([[0.25, 0.5, 0.125], [3, 3, np.nan]], np.float32)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path) -> Iterator[Running]:
    """The same models twice, with and without batching: an identity a datatype, and a sum of two inputs."""
    folder = tmp_path_factory.mktemp("parity")
    entries = []
    bodies = {f"same_{t}": f"({t}[n, k] x) => ({t}[n, k] y) {{ y = Identity(x) }}" for t in ("float", "int64", "bool")}
    bodies["sum"] = "(float[n, k] x, float[m, k] z) => (float[p, k] y) { y = Concat<axis = 0>(x, z) }"
    bodies["add"] = "(float[n, k] x, float[n, k] z) => (float[n, k] y) { y = Add(x, z) }"
    for name, body in bodies.items():
        text = f'<ir_version: 10, opset_import: ["": 21]> g {body}'
        onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
        entries.append(f"- {{name: {name}, path: {folder / name}.onnx, engine: native}}")
        entries.append(f"- {{name: batched_{name}, path: {folder / name}.onnx, engine: native, batching: {{}}}}")
    starter = Starter(tmp_path_factory.mktemp("servers"), warm_cache)
    yield starter("\n".join(entries))
    starter.close()


@pytest.fixture(params=["grpc", "http"])
def port(request: pytest.FixtureRequest) -> ModuleType:
    library: ModuleType = getattr(tritonclient, request.param)
    return library


@pytest.fixture
def client(port: ModuleType, running: Running) -> Iterator[Any]:
    address = running.address if port is tritonclient.grpc else running.http.removeprefix("http://")
    open_client = tritonclient.grpc.InferenceServerClient if port is tritonclient.grpc else HttpClient
    with open_client(address) as client:
        yield client


class HttpClient(tritonclient.http.InferenceServerClient):
    """A client that a fixture closes; the collector, which may run in any thread, must not: gevent fails there."""

    def __del__(self) -> None:
        pass


def given(port: ModuleType, **arrays: np.ndarray) -> list[Any]:
    inputs = []
    for name, array in arrays.items():
        inputs.append(port.InferInput(name, array.shape, tritonclient.utils.np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    return inputs


def status(error: pytest.ExceptionInfo[InferenceServerException]) -> str:
    return str(error.value.status()).removeprefix("StatusCode.")


def test_the_best_classes_of_each_row_of_a_batched_model_are_given(port: ModuleType, client: Any) -> None:
    requested = port.InferRequestedOutput("y", class_count=2)

    answer = client.infer("batched_same_float", given(port, x=SCORES), outputs=[requested]).as_numpy("y")

    assert answer.tolist() == [[b"0.500000:1", b"0.250000:0"], [b"3.000000:0", b"3.000000:1"]]


def test_a_model_without_batches_gives_one_classification_and_never_more_classes_than_there_are(
    port: ModuleType, client: Any
) -> None:
    requested = port.InferRequestedOutput("y", class_count=100)
    x = np.array([[3, -1], [7, 2**62]])

    answer = client.infer("same_int64", given(port, x=x), outputs=[requested]).as_numpy("y")

    assert answer.tolist() == [b"4611686018427387904:3", b"7:2", b"3:0", b"-1:1"]


def test_an_output_without_an_order_has_no_classification(port: ModuleType, client: Any) -> None:
    requested = port.InferRequestedOutput("y", class_count=1)

    with pytest.raises(InferenceServerException, match="has type BOOL, which has no classification"):
        client.infer("same_bool", given(port, x=np.array([[True]])), outputs=[requested])


def test_a_classification_is_announced(port: ModuleType, client: Any) -> None:
    metadata = client.get_server_metadata()

    assert "classification" in (metadata["extensions"] if port is tritonclient.http else metadata.extensions)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param((2, 3), "should have the same number of rows (axis 0), but 'x' has 2, 'z' has 3", id="different"),
        pytest.param((0, 0), "the request has no row", id="none"),
    ],
)
def test_a_batched_model_refuses_what_is_no_batch(
    port: ModuleType, client: Any, rows: tuple[int, int], message: str
) -> None:
    x, z = (np.ones((count, 2), np.float32) for count in rows)

    with pytest.raises(InferenceServerException) as error:
        client.infer("batched_add", given(port, x=x, z=z))

    assert message in str(error.value)
    assert status(error) in ("INVALID_ARGUMENT", "400")


def test_a_model_without_batches_takes_any_rows(port: ModuleType, client: Any) -> None:
    x, z = np.ones((2, 2), np.float32), np.ones((0, 2), np.float32)

    assert client.infer("sum", given(port, x=x, z=z)).as_numpy("y").shape == (2, 2)


@pytest.mark.parametrize(
    "sequence", [{"sequence_id": 7}, {"sequence_id": "mine"}, {"sequence_id": 1, "sequence_start": True}]
)
def test_a_request_of_a_sequence_is_refused(port: ModuleType, client: Any, sequence: dict[str, Any]) -> None:
    with pytest.raises(InferenceServerException, match="the model has no sequences; send the request") as error:
        client.infer("same_float", given(port, x=SCORES), **sequence)

    assert status(error) in ("INVALID_ARGUMENT", "400")
