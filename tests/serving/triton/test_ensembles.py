"""Ensembles of a Triton repository: merged, served, explained, followed when a model of theirs changes, or refused."""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from ensembles import ENSEMBLES, GRAPHS, PORTS, X, configured, one_by_one, read, write_ensemble, write_model, written
from tests.serving.conftest import READY_S, Eventually, Running, given, refusal
from trtnode.engines.build.options import CompileOptions
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server

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


def test_the_page_of_an_ensemble_shows_its_steps(served: Running) -> None:
    with urllib.request.urlopen(f"{served.http}/models/five/explain") as answer:
        page = answer.read().decode()

    assert page.count('<path class="step"') == 6
    assert "</b> dense_2</li>" in page


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


ADD = "(float[N, 4] x) => (float[N, 4] y) <float c = {K}> { y = Add(x, c) }"
TWICE = [("add", {"x": "image"}, {"y": "between"}), ("add", {"x": "between"}, {"y": "answer"})]


def write_adders(repository: pathlib.Path, constant: int) -> None:
    write_model(repository / "add", ADD.replace("K", str(constant)), 17)
    write_ensemble(repository / "twice", configured(TWICE, ports=PORTS.replace("UINT8", "FP32")))


@contextlib.contextmanager
def asking(address: str, errors: list[Exception]) -> Iterator[list[float]]:
    """Ask an ensemble without pause in some threads, and collect the answers."""
    answers: list[float] = []
    over = threading.Event()

    def ask() -> None:
        with triton.InferenceServerClient(address) as client:
            while not over.is_set():
                try:
                    answers.append(added(client))
                except InferenceServerException as error:
                    errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield answers
    over.set()
    for thread in threads:
        thread.join()


def added(client: triton.InferenceServerClient) -> float:
    zeros = np.zeros((1, 4), np.float32)
    return float(client.infer("twice", [given("image", zeros)]).as_numpy("answer").max())


@pytest.mark.parametrize("watch", [False, True])
def test_a_member_that_is_loaded_again_is_in_all_steps_at_once(
    serve: Serve, tmp_path: pathlib.Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, watch: bool
) -> None:
    monkeypatch.setattr("trtnode.serving.models.watcher.POLL_S", 0.05)
    write_adders(tmp_path, 1)
    running = serve(tmp_path, watch=watch)
    errors: list[Exception] = []

    with asking(running.address, errors) as answers:
        for constant in (10, 1, 10):
            write_adders(tmp_path, constant)
            if not watch:
                running.client.load_model("add")
                assert added(running.client) == 2 * constant
            eventually(lambda expected=2 * constant: answers[-1:] == [expected])

    assert errors == []
    assert set(answers) == {2, 20}


def test_files_that_a_request_brings_for_a_member_are_those_of_its_ensembles(
    serve: Serve, tmp_path: pathlib.Path
) -> None:
    write_adders(tmp_path / "repository", 1)
    write_adders(tmp_path / "other", 10)
    client = serve(tmp_path / "repository").client
    file = (tmp_path / "other" / "add" / "1" / "model.onnx").read_bytes()

    client.load_model("add", config="{}", files={"file:3/model.onnx": file})
    assert added(client) == 20
    client.load_model("twice")
    assert added(client) == 20
    client.load_model("add")
    assert added(client) == 2


def test_a_member_that_does_not_fit_any_more_leaves_the_ensemble_as_it_was(
    serve: Serve, tmp_path: pathlib.Path
) -> None:
    write_adders(tmp_path, 1)
    client = serve(tmp_path).client
    write_model(tmp_path / "add", "(float[N, 4] x) => (int64[N, 4] y) { y = Cast<to = 7>(x) }", 17)

    client.load_model("add")

    assert added(client) == 2
    reasons = {one.name: one.reason for one in client.get_model_repository_index().models}
    assert "not replaced by what is on disk now: ensemble[1].inputs.x: takes float32[" in reasons["twice"]
    client.unload_model("add")
    assert added(client) == 2


def test_a_number_asks_for_a_version_of_a_member(serve: Serve, tmp_path: pathlib.Path) -> None:
    for version, constant in ((1, 1), (2, 10)):
        write_model(tmp_path / "add", ADD.replace("K", str(constant)), 17, version)
    text = configured(TWICE, ports=PORTS.replace("UINT8", "FP32"))
    write_ensemble(tmp_path / "twice", text.replace("model_version: -1", "model_version: 1", 1))

    assert added(serve(tmp_path).client) == 11


def test_the_layout_of_nvidias_image_classification_is_served_with_labels(serve: Serve, tmp_path: pathlib.Path) -> None:
    """The layout of preprocess_densenet_ensemble: a batch of one, and reshapes around the network."""
    resize = """(uint8[h, w, 3] raw) => (float[3, 4, 4] out)
        <int64[1] first = {0}, int64[4] size = {1, 3, 4, 4}, float most = {255}> {
        numbers = Cast<to = 1>(raw)
        planes = Transpose<perm = [2, 0, 1]>(numbers)
        batch = Unsqueeze(planes, first)
        resized = Resize<mode = "linear">(batch, , , size)
        alone = Squeeze(resized, first)
        out = Div(alone, most)
    }"""
    write_model(tmp_path / "preprocess", resize, 18)
    network = "(float[1, 3, 4, 4] data_0) => (float[1, 3, 1, 1] fc6_1) { fc6_1 = GlobalAveragePool(data_0) }"
    write_model(tmp_path / "densenet_onnx", network, 9)
    (tmp_path / "densenet_onnx" / "config.pbtxt").write_text("""
        name: "densenet_onnx"
        platform: "onnxruntime_onnx"
        max_batch_size: 0
        input [ { name: "data_0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 4, 4 ]
                  reshape { shape: [ 1, 3, 4, 4 ] } } ]
        output [ { name: "fc6_1" data_type: TYPE_FP32 dims: [ 3 ] reshape { shape: [ 1, 3, 1, 1 ] }
                   label_filename: "labels.txt" } ]
    """)
    (tmp_path / "densenet_onnx" / "labels.txt").write_text("RED\nGREEN\nBLUE\n")
    steps = [
        ("preprocess", {"raw": "INPUT"}, {"out": "preprocessed_image"}),
        ("densenet_onnx", {"data_0": "preprocessed_image"}, {"fc6_1": "CLASSIFICATION"}),
    ]
    write_ensemble(
        tmp_path / "preprocess_densenet_ensemble",
        configured(
            steps,
            head='name: "preprocess_densenet_ensemble"\nmax_batch_size: 0',
            ports="""
input [ { name: "INPUT" data_type: TYPE_UINT8 dims: [ -1, -1, 3 ] } ]
output [ { name: "CLASSIFICATION" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" } ]
""",
        ),
    )
    client = serve(tmp_path).client
    image = np.full((9, 7, 3), [0, 51, 255], np.uint8)
    wanted = triton.InferRequestedOutput("CLASSIFICATION", class_count=2)

    answer = client.infer("preprocess_densenet_ensemble", [given("INPUT", image)], outputs=[wanted])
    alone = client.infer("densenet_onnx", [given("data_0", np.ones((3, 4, 4), np.float32))]).as_numpy("fc6_1")

    assert [one.decode() for one in answer.as_numpy("CLASSIFICATION")] == ["1.000000:2:blue", "0.200000:1:green"]
    assert alone.tolist() == [1, 1, 1]
    metadata = client.get_model_metadata("preprocess_densenet_ensemble")
    assert [list(one.shape) for one in (*metadata.inputs, *metadata.outputs)] == [[-1, -1, 3], [3]]


@pytest.mark.parametrize(
    ("written_so", "sentence"),
    [
        ("TYPE_FP32 dims: [ 4 ] }", "input 'image' should be FP32, and is UINT8 ({file}:3)"),
        ("TYPE_UINT8 dims: [ 5 ] }", "input 'image' should have shape [-1, 5], and has [-1, 4] ({file}:3)"),
    ],
)
def test_types_and_sizes_of_requests_are_those_of_the_steps(
    serve: Serve, tmp_path: pathlib.Path, written_so: str, sentence: str
) -> None:
    text = configured(ENSEMBLES["three"]).replace("TYPE_UINT8 dims: [ 4 ] }", written_so)
    write_ensemble(written(tmp_path, "three") / "three", text)

    running = serve(tmp_path, required=False)

    reason = refusal(lambda: running.client.load_model("three"))[1]
    assert sentence.format(file=tmp_path / "three" / "config.pbtxt") in reason
