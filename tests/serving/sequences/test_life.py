"""Sequences when their model is replaced or unloaded, their server stops, and others call."""

from __future__ import annotations

import pathlib
import shutil
import urllib.request
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton

from model_texts import parse
from stateful_models import DOUBLING
from tests.serving.conftest import Running, Starter, given, refusal
from tests.serving.sequences.conftest import add
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError

TOKENS = """
tokens:
  - {name: one, token: "0123456789abcdef"}
  - {name: two, token: "fedcba9876543210"}
"""


@pytest.fixture
def own(counter: pathlib.Path, start: Starter, tmp_path: pathlib.Path) -> Running:
    """A server of a counter in a file of its own, which a test may replace."""
    shutil.copy(counter, tmp_path / "counter.onnx")
    models = f"- {{name: counter, path: {tmp_path}/counter.onnx, engine: native, state: auto}}\n"
    return start(models, server="admin: {repository: true}")


def test_a_sequence_keeps_the_version_that_it_began_with(own: Running, tmp_path: pathlib.Path) -> None:
    add(own.client, 1, 1, sequence_start=True)
    onnx.save(parse(DOUBLING), tmp_path / "next.onnx")
    (tmp_path / "next.onnx").replace(tmp_path / "counter.onnx")

    own.client.load_model("counter")
    add(own.client, 1, 2, sequence_start=True)

    assert [add(own.client, 1, 1), add(own.client, 1, 2)] == [2, 3]
    assert add(own.client, 1, 1, sequence_end=True) == 3
    assert add(own.client, 1, 1, sequence_start=True) == 1
    assert add(own.client, 1, 1) == 3


def test_an_unloaded_model_ends_its_sequences(own: Running, eventually: Callable[[Callable[[], bool]], None]) -> None:
    add(own.client, 1, 1, sequence_start=True)

    own.client.unload_model("counter")

    eventually(lambda: own.client.get_model_repository_index().models[0].state == "UNAVAILABLE")
    assert refusal(lambda: add(own.client, 1, 2, sequence_start=True))[0] == "NOT_FOUND"
    status, text = refusal(lambda: add(own.client, 1, 1))
    assert status == "INVALID_ARGUMENT"
    assert "ended when its model was unloaded; begin it with a request that has sequence_start set" in text


def test_a_server_with_open_sequences_stops(own: Running) -> None:
    add(own.client, 1, 1, sequence_start=True)

    assert own.server.stop(60)


def test_a_sequence_belongs_to_the_token_that_began_it(
    counter: pathlib.Path, start: Starter, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    (tmp_path / "tokens.yaml").chmod(0o600)
    models = f"- {{name: counter, path: {counter}, engine: native, state: auto}}\n"
    running = start(models, server=f"auth: {{tokens_file: {tmp_path}/tokens.yaml}}")
    one, two = ({"authorization": f"Bearer {token}"} for token in ("0123456789abcdef", "fedcba9876543210"))
    add(running.client, 5, 1, sequence_start=True, headers=one)

    assert refusal(lambda: add(running.client, 1, 1, headers=two))[0] == "INVALID_ARGUMENT"
    assert add(running.client, 2, 1, sequence_start=True, headers=two) == 2
    assert add(running.client, 1, 1, headers=one) == 6


def test_as_many_sequences_live_as_may(counter: pathlib.Path, start: Starter) -> None:
    models = f"- {{name: counter, path: {counter}, engine: native, state: auto, sequences: {{max: 2}}}}\n"
    running = start(models)
    for identity in (1, 2, 3):
        add(running.client, identity, identity, sequence_start=True)

    assert [add(running.client, 1, identity) for identity in (2, 3)] == [3, 4]
    assert "made room for others" in refusal(lambda: add(running.client, 1, 1))[1]
    with urllib.request.urlopen(f"{running.http}/metrics") as answer:
        metrics = answer.read().decode()
    labels = 'model="counter",version="1"'
    for line in (
        f"trtnode_sequences_open{{{labels}}} 2.0",
        f"trtnode_sequences_begun_total{{{labels}}} 3.0",
        'trtnode_sequences_ended_total{model="counter",reason="evicted",version="1"} 1.0',
        f"trtnode_sequence_state_bytes{{{labels}}} 8.0",
    ):
        assert line in metrics


def test_the_status_page_and_the_configuration_tell_of_sequences(counting: Running) -> None:
    add(counting.client, 1, "told", sequence_start=True)

    with urllib.request.urlopen(f"{counting.http}/status.json") as answer:
        facts = answer.read().decode()
    config = counting.client.get_model_config("counter").config

    assert '"sequences":[["open",' in facts.replace(" ", "")
    assert config.sequence_batching.max_sequence_idle_microseconds == 60_000_000


def test_an_output_of_state_that_the_configuration_lists_may_be_asked_for(
    counter: pathlib.Path, start: Starter
) -> None:
    models = (
        f"- {{name: counter, path: {counter}, engine: native, state: [{{input: state, output: stateN}}], "
        "interface: {inputs: {x: {}}, outputs: {sum: {}, stateN: {}}}}\n"
    )
    running = start(models)
    inputs = [given("x", np.array([[4]], np.float32))]

    outputs = [triton.InferRequestedOutput("stateN")]
    result = running.client.infer("counter", inputs, sequence_id=1, sequence_start=True, outputs=outputs)

    assert result.as_numpy("stateN").tolist() == [[4]]
    assert add(running.client, 1, 1) == 5


@pytest.fixture
def config(tmp_path: pathlib.Path, counter: pathlib.Path) -> Iterator[Callable[[str, str], object]]:
    def read(model: str, server: str) -> object:
        path = tmp_path / "servable.yaml"
        path.write_text(f"server: {{{server}}}\nmodels:\n- {{name: counter, path: {counter}, {model}}}\n")
        return load_config(path, on_ray="ray" in server)

    return read


@pytest.mark.parametrize(
    ("model", "server", "message"),
    [
        pytest.param(
            "state: auto",
            "grpc: {workers: 2}",
            "models[0].state: is kept in one process, and server.grpc.workers is 2; set that to 1",
            id="workers",
        ),
        pytest.param("state: auto", "name: ray", "is kept in one process, and Ray runs several", id="ray"),
        pytest.param(
            "state: auto, lengths: auto", "", "models[0].lengths: would pad what state is made of", id="lengths"
        ),
        pytest.param(
            "state: [{input: state, output: stateN, initial: no.npz}]",
            "",
            "models[0].state[0].initial: there is no file",
            id="initial",
        ),
        pytest.param("state: some", "", "models[0].state", id="word"),
    ],
)
def test_a_model_with_state_is_refused_where_it_cannot_be_served(
    config: Callable[[str, str], object], model: str, server: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(model, server)

    assert message in str(caught.value)
