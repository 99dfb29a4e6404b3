"""Models that servable.yaml doesn't have, loaded by name with the files of a request."""

from __future__ import annotations

import json
import pathlib
import urllib.request
from base64 import b64encode

import grpc
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Adders, Running, Starter
from trtnode.serving.models import repository


@pytest.fixture
def running(start: Starter, adders: Adders) -> Running:
    path = adders.write("m.onnx", 1)
    return start(f"- {{name: m, path: {path}, engine: native}}", server="admin: {repository: true}")


def index(client: triton.InferenceServerClient) -> set[tuple[str, str, str]]:
    return {(one.name, one.version, one.state) for one in client.get_model_repository_index().models}


def code_of(error: pytest.ExceptionInfo[InferenceServerException]) -> str:
    return str(error.value.status())


def test_a_model_that_is_not_configured_is_loaded_from_the_files_of_a_request(running: Running, adders: Adders) -> None:
    client = running.client

    client.load_model("new", config='{"instances": 2, "engine": "native"}', files={"file:3/m.onnx": adders.content(3)})

    assert adders.ask(client, model="new") == 3
    assert index(client) == {("m", "1", "READY"), ("new", "3", "READY")}
    assert client.get_model_config("new").config.instance_group[0].count == 2

    client.load_model("new", config='{"engine": "native"}', files={"file:4/m.onnx": adders.content(4)})
    assert adders.ask(client, model="new") == 4


def test_it_is_unloaded_like_others_and_comes_back_only_with_its_files(running: Running, adders: Adders) -> None:
    client = running.client
    bring = {"config": '{"engine": "native"}', "files": {"file:1/m.onnx": adders.content(5)}}
    client.load_model("new", **bring)

    client.unload_model("new")

    assert not client.is_model_ready("new")
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'new' is not found") as error:
        client.load_model("new")
    assert code_of(error) == "StatusCode.INTERNAL"
    client.load_model("new", **bring)
    assert adders.ask(client, model="new") == 5


def test_rest_loads_it_too(running: Running, adders: Adders) -> None:
    file = b64encode(adders.content(6)).decode()
    body = {"parameters": {"config": '{"engine": "native"}', "file:1/model.onnx": file}}
    urllib.request.urlopen(f"{running.http}/v2/repository/models/new/load", json.dumps(body).encode()).close()

    assert adders.ask(running.client, model="new") == 6


def test_one_that_can_not_be_loaded_leaves_no_trace(running: Running) -> None:
    client, before = running.client, index(running.client)

    for _ in range(2):
        with pytest.raises(InferenceServerException, match="is not loaded") as error:
            client.load_model("new", config="{}", files={"file:1/m.onnx": b"no"})
        assert code_of(error) == "StatusCode.INTERNAL"

    assert index(client) == before
    assert client.is_server_ready()
    assert b'"new"' not in urllib.request.urlopen(f"{running.http}/metrics").read()
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'new' is not found"):
        client.get_model_metadata("new")


@pytest.mark.parametrize("name", ["../m", "a/b", "a..b", ""])
def test_a_name_that_no_model_can_have_is_an_invalid_argument(
    running: Running, name: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(InferenceServerException, match="no model can be called") as error:
        running.client.load_model(name, config="{}", files={"file:1/m.onnx": b"no"})

    assert code_of(error) == str(grpc.StatusCode.INVALID_ARGUMENT)


def test_there_is_a_limit_to_their_number(running: Running, adders: Adders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MOST_ADDED", 1)
    bring = {"config": '{"engine": "native"}', "files": {"file:1/m.onnx": adders.content(5)}}
    running.client.load_model("one", **bring)

    with pytest.raises(InferenceServerException, match="1 models that servable"):
        running.client.load_model("two", **bring)

    running.client.load_model("one", **bring)
    assert adders.ask(running.client, model="one") == 5
