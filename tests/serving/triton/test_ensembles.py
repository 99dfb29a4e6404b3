"""Ensembles of a Triton repository: merged, served, explained, followed when a model of theirs changes, or refused."""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http

from ensembles import ENSEMBLES, GRAPHS, X, one_by_one, written
from tests.serving.conftest import READY_S, Running, given, refusal
from trtnode.engines.build.options import CompileOptions
from trtnode.serving.cli.serve import SERVE
from trtnode.serving.config.command_line import config_from
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server
from trtnode.serving.schema.server import ServableConfig


def read(repository: pathlib.Path, *flags: str) -> ServableConfig:
    parser = argparse.ArgumentParser()
    SERVE.configure(parser)
    flags = ("--model-repository", str(repository), "--port", "0", "--http-port", "0", *flags)
    return config_from(parser.parse_args(flags))


Serve = Callable[..., Running]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path) -> Iterator[Serve]:
    """Serve a repository natively, or with what is given of its models."""
    yaml = tmp_path_factory.mktemp("server") / "server.yaml"
    yaml.write_text(f"server: {{admin: {{repository: true}}}}\ncache: {{dir: {warm_cache}}}\n")
    started: list[Running] = []

    def start(repository: pathlib.Path, **update: Any) -> Running:
        config = read(repository, "--config", str(yaml))
        changed = {"options": CompileOptions(engine="native"), **update}
        config = config.model_copy(update={"models": tuple(m.model_copy(update=changed) for m in config.models)})
        server = Server(config, engine_loader(config))
        server.start()
        started.append(Running(server, triton.InferenceServerClient(f"127.0.0.1:{server.port}")))
        assert server.wait_ready(READY_S), server.failure
        return started[-1]

    yield start
    for one in started:
        one.client.close()
        one.server.stop(5)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> Running:
    return serve(written(tmp_path_factory.mktemp("repository")))


@pytest.mark.parametrize("name", ENSEMBLES)
def test_an_ensemble_answers_as_its_steps_one_after_the_other(name: str, served: Running) -> None:
    answer = served.client.infer(name, [given("image", X)]).as_numpy("answer")

    np.testing.assert_allclose(answer, one_by_one(ENSEMBLES[name], X), rtol=1e-5)


def test_clients_of_both_ports_find_an_ensemble(served: Running) -> None:
    with triton_http.InferenceServerClient(served.http.removeprefix("http://")) as web:
        image = triton_http.InferInput("image", [2, 4], "UINT8")
        image.set_data_from_numpy(X)
        wanted = triton_http.InferRequestedOutput("answer", class_count=1)
        best = web.infer("three", [image], outputs=[wanted]).as_numpy("answer")
        metadata, config = web.get_model_metadata("three"), web.get_model_config("three")
        statistics = {one["name"]: one for one in web.get_inference_statistics()["model_stats"]}
        index = {one["name"]: one["state"] for one in web.get_model_repository_index()}
    over_grpc = served.client.get_model_config("three").config

    assert [row.decode().split(":")[2] for row in best.ravel()] == [
        ["red", "green", "blue", "white"][place] for place in one_by_one(ENSEMBLES["three"], X).argmax(axis=1)
    ]
    assert (metadata["platform"], metadata["versions"], config["platform"]) == ("ensemble", ["1"], "ensemble")
    assert [(one["name"], one["datatype"], one["shape"]) for one in metadata["inputs"]] == [("image", "UINT8", [-1, 4])]
    assert [step["model_name"] for step in config["ensemble_scheduling"]["step"]] == ["scale", "dense", "softmax"]
    assert config["ensemble_scheduling"]["step"][0]["input_map"] == {"raw": "image"}
    assert (config["max_batch_size"], over_grpc.platform, len(over_grpc.ensemble_scheduling.step)) == (8, "ensemble", 3)
    assert statistics["three"]["inference_count"] > 0
    assert index == dict.fromkeys([*GRAPHS, *ENSEMBLES], "READY")


def test_the_batch_size_is_that_of_the_ensemble_and_its_models_stay_served(served: Running) -> None:
    logits = served.client.infer("dense", [given("x", np.ones((1, 4), np.float32))]).as_numpy("y")

    assert logits.tolist() == [[19, 14, 18, 22]]
    assert served.client.get_model_config("three").config.max_batch_size == 8
    assert refusal(lambda: served.client.infer("three", [given("image", np.ones((9, 4), np.uint8))]))[0] == (
        "INVALID_ARGUMENT"
    )


def test_settings_of_an_ensemble_can_be_loaded_and_its_steps_can_not_be_changed(served: Running) -> None:
    client = served.client
    config = client.get_model_config("diamond", as_json=True)["config"]

    client.load_model("diamond", config=json.dumps({**config, "max_batch_size": 2}))
    assert client.get_model_config("diamond").config.max_batch_size == 2
    assert client.get_model_config("diamond").config.ensemble_scheduling.step[3].model_name == "join"
    config["ensemble_scheduling"]["step"].pop()
    code, text = refusal(lambda: client.load_model("diamond", config=json.dumps(config)))
    client.load_model("diamond")

    assert (code, "config: ensemble_scheduling: its steps stand in the file; change them there" in text) == (
        "INVALID_ARGUMENT",
        True,
    )
    np.testing.assert_allclose(
        client.infer("diamond", [given("image", X)]).as_numpy("answer"), one_by_one(ENSEMBLES["diamond"], X), rtol=1e-5
    )
