"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload."""

from __future__ import annotations

import hashlib
import json
import pathlib
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import yaml
from google.protobuf.message import Message

from tests.serving.conftest import Adders, Eventually, FakeExecutable, Running, Starter, given, refusal
from trtnode.protos import RepositoryIndexRequest, RepositoryModelLoadRequest, RepositoryModelUnloadRequest
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.models.overrides import UploadedFiles

ADMIN = "admin: {repository: true}"
MODEL = "- {name: m, path: m.onnx, engine: native}"
PATIENCE_S = 120


@pytest.fixture
def running(start: Starter, adders: Adders) -> Running:
    """A server with a model ``m`` that may be loaded and unloaded."""
    adders.write("m.onnx", 1)
    return start(MODEL, server=ADMIN)


def raw_status(running: Running, rpc: str, request: Message) -> tuple[str, str]:
    with grpc.insecure_channel(running.address) as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{rpc}")
        with pytest.raises(grpc.RpcError) as caught:
            call(request.SerializeToString())
    return caught.value.code().name, caught.value.details()


def test_an_unloaded_model_is_not_found_until_it_is_loaded_again(
    running: Running, adders: Adders, eventually: Eventually
) -> None:
    client = running.client

    client.unload_model("m")

    assert not client.is_model_ready("m")
    assert refusal(lambda: adders.ask(client))[0] == "NOT_FOUND"
    assert refusal(lambda: client.get_model_metadata("m"))[0] == "NOT_FOUND"
    assert refusal(lambda: client.get_model_config("m"))[0] == "NOT_FOUND"
    eventually(lambda: adders.index(client) == {"1": ("UNAVAILABLE", "unloaded")})

    client.load_model("m")

    assert adders.ask(client) == 1
    assert adders.index(client) == {"1": ("READY", "")}


def test_a_server_stays_ready_without_a_model_that_was_unloaded(running: Running, adders: Adders) -> None:
    running.client.unload_model("m")
    assert running.client.is_server_ready()

    (adders.folder / "m.onnx").write_bytes(b"no model")
    refusal(lambda: running.client.load_model("m"))
    assert running.client.is_server_ready()

    adders.write("m.onnx", 2)
    running.client.load_model("m")
    assert adders.ask(running.client) == 2
    assert running.client.is_server_ready()


def test_a_deployment_that_failed_shows_in_the_metrics_until_one_succeeds(running: Running, adders: Adders) -> None:
    def exported(name: str) -> float | None:
        return running.server.metrics.registry.get_sample_value(name, {"model": "m", "version": "1"})

    assert (exported("trtnode_failed_loads_total"), exported("trtnode_model_outdated")) == (0, 0)

    (adders.folder / "m.onnx").write_bytes(b"no model")
    refusal(lambda: running.client.load_model("m"))
    assert (exported("trtnode_failed_loads_total"), exported("trtnode_model_outdated")) == (1, 1)
    assert adders.ask(running.client) == 1

    adders.write("m.onnx", 2)
    running.client.load_model("m")
    assert (exported("trtnode_failed_loads_total"), exported("trtnode_model_outdated")) == (1, 0)


def test_metrics_tell_which_file_is_served_since_when(running: Running, adders: Adders) -> None:
    registry, labels = running.server.metrics.registry, {"model": "m", "version": "1"}

    def served() -> list[str]:
        (family,) = (one for one in registry.collect() if one.name == "trtnode_model_info")
        return [sample.labels["sha256"] for sample in family.samples]

    def loaded() -> float:
        return registry.get_sample_value("trtnode_model_loaded_timestamp_seconds", labels) or 0

    first = loaded()
    assert served() == [hashlib.sha256(adders.content(1)).hexdigest()]
    adders.write("m.onnx", 2)
    running.client.load_model("m")
    assert served() == [hashlib.sha256(adders.content(2)).hexdigest()]
    assert loaded() > first
    running.client.unload_model("m")
    assert served() == []


def test_unloading_waits_for_requests_in_flight_without_making_the_caller_wait(
    start: Starter, fake: FakeExecutable, adders: Adders, eventually: Eventually
) -> None:
    running = start("- {name: fake, path: fake.onnx, warmup: 0}", server=ADMIN, loader=lambda model: fake)
    x = given("x", np.zeros(1, np.float32))
    fake.gate.clear()

    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(running.client.infer, "fake", [x])
        assert fake.started.acquire(timeout=120)
        running.client.unload_model("fake")
        eventually(lambda: adders.index(running.client) == {"1": ("UNLOADING", "")})
        assert not fake.closed
        fake.gate.set()
        assert request.result(120).as_numpy("y").tolist() == [1]

    eventually(lambda: adders.index(running.client) == {"1": ("UNAVAILABLE", "unloaded")})
    assert fake.closed


def test_a_reload_that_fails_is_internal_and_keeps_the_old_model(running: Running, adders: Adders) -> None:
    file = adders.folder / "m.onnx"
    file.write_bytes(b"no model")

    assert refusal(lambda: running.client.load_model("m"))[0] == "INTERNAL"

    assert adders.ask(running.client) == 1
    state, reason = adders.index(running.client)["1"]
    assert state == "READY"
    assert reason.startswith("not replaced by what is on disk now: ")
    assert str(file) in reason
    assert running.server.failure is None


@pytest.mark.parametrize(
    ("before", "after"), [("null", "{max_batch_size: 4}"), ("{max_batch_size: 4}", "null")], ids=["on", "off"]
)
def test_counts_go_on_after_a_reload_with_or_without_batching(
    start: Starter, adders: Adders, before: str, after: str
) -> None:
    adders.write("m.onnx", 1)
    client = start(f"- {{name: m, path: m.onnx, engine: native, batching: {before}}}", server=ADMIN).client
    adders.ask(client)
    adders.ask(client)
    client.load_model("m", config=json.dumps({"batching": yaml.safe_load(after)}))
    adders.ask(client)

    (statistics,) = client.get_inference_statistics("m").model_stats

    assert (statistics.inference_count, statistics.execution_count) == (3, 3)
    assert [(one.batch_size, one.compute_infer.count) for one in statistics.batch_stats] == [(1, 3)]


def test_a_client_that_never_says_what_to_load_keeps_nobody_from_loading(running: Running, adders: Adders) -> None:
    told = threading.Event()

    def nothing() -> Iterator[bytes]:
        told.wait(120)
        yield b""

    with grpc.insecure_channel(running.address) as channel:
        stuck = channel.stream_unary("/inference.GRPCInferenceService/RepositoryModelLoad").future(nothing())
        running.client.load_model("m", client_timeout=60)
        assert not stuck.done()
        told.set()
    assert adders.ask(running.client) == 1


def test_unknown_models_have_the_codes_of_the_protocol(running: Running) -> None:
    assert refusal(lambda: running.client.load_model("other"))[0] == "INTERNAL"
    running.client.unload_model("other")


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("RepositoryIndex", RepositoryIndexRequest(repository_name="r")),
        ("RepositoryModelLoad", RepositoryModelLoadRequest(repository_name="r", model_name="m")),
        ("RepositoryModelUnload", RepositoryModelUnloadRequest(repository_name="r", model_name="m")),
    ],
)
def test_a_named_repository_is_unimplemented(running: Running, rpc: str, request_: Message) -> None:
    code, text = raw_status(running, rpc, request_)

    assert code == "UNIMPLEMENTED"
    assert "leave repository_name empty" in text


@pytest.mark.parametrize("rpc", ["RepositoryModelLoad", "RepositoryModelUnload"])
def test_loading_and_unloading_are_off_unless_allowed(shared: Running, rpc: str) -> None:
    code, text = raw_status(shared, rpc, RepositoryModelLoadRequest(model_name="two"))

    assert code == "PERMISSION_DENIED"
    assert "server.admin.repository allows it" in text
    assert shared.client.is_model_ready("two")


def test_a_request_can_bring_settings_and_a_model_along(running: Running, adders: Adders) -> None:
    files = {"file:7/model.onnx": adders.content(7)}

    running.client.load_model("m", config=json.dumps({"instances": 2, "versions": "all"}), files=files)

    assert adders.ask(running.client) == 7
    assert list(running.client.get_model_metadata("m").versions) == ["7"]
    assert running.client.get_model_config("m").config.instance_group[0].count == 2

    running.client.load_model("m")

    assert adders.ask(running.client) == 1
    assert list(running.client.get_model_metadata("m").versions) == ["1"]


def test_a_request_can_have_more_run_at_once(start: Starter, fake: FakeExecutable) -> None:
    running = start("- {name: fake, path: fake.onnx, warmup: 0}", server=ADMIN, loader=lambda model: fake)
    running.client.load_model("fake", config=json.dumps({"instances": 8}))
    x = given("x", np.zeros(1, np.float32))
    fake.gate.clear()

    with ThreadPoolExecutor(9) as callers:
        answers = [callers.submit(running.client.infer, "fake", [x]) for _ in range(9)]
        all_run = all(fake.started.acquire(timeout=PATIENCE_S) for _ in range(8))
        fake.gate.set()

    assert all_run
    assert fake.most_at_once == 8
    assert all(answer.result().as_numpy("y").tolist() == [1] for answer in answers)


def test_a_model_brought_along_that_is_none_changes_nothing(running: Running, adders: Adders) -> None:
    files = {"file:7/model.onnx": b"no model"}

    assert refusal(lambda: running.client.load_model("m", config="{}", files=files))[0] == "INTERNAL"

    assert adders.ask(running.client) == 1
    assert adders.index(running.client)["7"][0] == "UNAVAILABLE"
    running.client.load_model("m")
    assert adders.index(running.client) == {"1": ("READY", "")}


def test_files_of_a_request_are_deleted_with_the_version_that_used_them(
    running: Running, adders: Adders, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "uploads"))
    (tmp_path / "uploads").mkdir()
    running.client.load_model("m", config="{}", files={"file:2/model.onnx": adders.content(2)})
    assert list((tmp_path / "uploads").iterdir())

    running.client.load_model("m")

    eventually(lambda: not list((tmp_path / "uploads").iterdir()))


@pytest.mark.parametrize(
    "name",
    [
        "file:../model.onnx",
        "file:1/../../model.onnx",
        "file:1//etc/model.onnx",
        "file:/etc/model.onnx",
        "file:1/a..b",
        "file:1/.hidden",
        "file:1/a\\b",
        "file:1/a\0b",
        "file:1/",
        "file:0/model.onnx",
        "file:one/model.onnx",
        "file:model.onnx",
    ],
)
def test_files_of_a_request_stay_in_their_folder(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="should be 'file:<version>/<path>'"):
        UploadedFiles({name: b""})


def test_a_path_that_leads_out_is_an_invalid_argument(running: Running, adders: Adders) -> None:
    files = {"file:1/../../../model.onnx": adders.content(7)}

    assert refusal(lambda: running.client.load_model("m", config="{}", files=files))[0] == "INVALID_ARGUMENT"
    assert adders.ask(running.client) == 1


@pytest.mark.parametrize("name", ["../m", "/etc/passwd", "m/../m", "", "m\0"])
def test_names_of_models_are_never_paths(running: Running, name: str) -> None:
    assert raw_status(running, "RepositoryModelLoad", RepositoryModelLoadRequest(model_name=name))[0] == "INTERNAL"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("{", "the parameter 'config' is no JSON"),
        ("[]", "should be a JSON object"),
        ('{"path": "/etc"}', "config: path can't be set by a request"),
        ('{"instances": 0}', "config: instances: should be greater than or equal to 1"),
        pytest.param(
            '{"instances": ' + "9" * 5000 + "}", "config: instances: should be less than or equal to 4096", id="digits"
        ),
        ('{"warmup": 1000000000}', "config: warmup: should be less than or equal to 10000"),
        (
            '{"batching": {"max_batch_size": 4000000}}',
            "config: batching.max_batch_size: should be less than or equal to",
        ),
        ('{"partition": {"native_opz": []}}', "config: partition.native_opz: unknown key; did you mean 'native_ops'?"),
        ('{"batching": {"max_batch": 1}}', "config: batching.max_batch: unknown key; did you mean 'max_batch_size'?"),
        ('{"batching": {"preferred_batch_sizes": [32]}}', "batching.preferred_batch_sizes: 32 is more than"),
    ],
)
def test_a_bad_config_is_an_invalid_argument_and_one_sentence(
    running: Running, adders: Adders, config: str, text: str
) -> None:
    request = RepositoryModelLoadRequest(model_name="m")
    request.parameters["config"].string_param = config

    code, details = raw_status(running, "RepositoryModelLoad", request)

    assert code == "INVALID_ARGUMENT"
    assert text in details
    assert adders.ask(running.client) == 1


@pytest.mark.parametrize(
    ("rpc", "name", "value"),
    [
        ("RepositoryModelLoad", "other", {"string_param": ""}),
        ("RepositoryModelLoad", "config", {"int64_param": 1}),
        ("RepositoryModelLoad", "file:1/model.onnx", {"bytes_param": b""}),
        ("RepositoryModelLoad", "file:1/model.onnx", {"string_param": ""}),
        ("RepositoryModelUnload", "other", {"bool_param": True}),
        ("RepositoryModelUnload", "unload_dependents", {"string_param": "yes"}),
    ],
)
def test_an_unknown_parameter_or_type_is_an_invalid_argument(
    running: Running, rpc: str, name: str, value: dict[str, Any]
) -> None:
    request = RepositoryModelLoadRequest(model_name="m")
    for field, content in value.items():
        setattr(request.parameters[name], field, content)

    assert raw_status(running, rpc, request)[0] == "INVALID_ARGUMENT"
    assert running.client.is_model_ready("m")


def test_uploaded_files_go_where_their_version_says() -> None:
    files = UploadedFiles({"file:3/weights/w.bin": b"w", "file:3/model.onnx": b"m"})

    assert (files.path / "3/weights/w.bin").read_bytes() == b"w"
    assert pathlib.Path(tempfile.gettempdir()) == files.path.parent
