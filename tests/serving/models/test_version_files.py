"""Version folders: which versions are served, and what requests get that name one."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Adders, Eventually, Starter
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError

FOLDER = "- {name: m, path: m, engine: native, "


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.status().removeprefix("StatusCode.")


@pytest.fixture
def folder(adders: Adders) -> pathlib.Path:
    """Versions 1, 2 and 10 of a model, and things that are no versions."""
    for number in (1, 2, 10):
        adders.write(f"m/{number}/model.onnx", number)
    for name in ("007", "0", "latest", "3"):
        (adders.folder / "m" / name).mkdir()
    return adders.folder / "m"


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", ["10"]),
        ("versions: {latest: 2}", ["2", "10"]),
        ("versions: {latest: 9}", ["1", "2", "10"]),
        ("versions: all", ["1", "2", "10"]),
        ("versions: [1, 2]", ["1", "2"]),
    ],
)
def test_the_policy_chooses_versions_and_the_highest_answers(
    start: Starter, adders: Adders, folder: pathlib.Path, eventually: Eventually, policy: str, served: list[str]
) -> None:
    client = start(FOLDER + policy + "}").client

    eventually(lambda: list(client.get_model_metadata("m").versions) == served)
    assert adders.ask(client) == int(served[-1])
    assert [adders.ask(client, version) for version in served] == [int(version) for version in served]
    assert adders.index(client) == dict.fromkeys(served, ("READY", ""))
    statistics = client.get_inference_statistics("m").model_stats
    assert [(one.version, one.inference_count) for one in statistics] == [
        (version, 1 + (version == served[-1])) for version in served
    ]


def test_a_version_folder_may_name_its_only_model_as_it_likes(start: Starter, adders: Adders) -> None:
    adders.write("m/4/resnet.onnx", 4)

    assert adders.ask(start(FOLDER + "}").client) == 4


def test_a_name_or_version_that_is_not_served_has_the_code_of_the_protocol(
    start: Starter, adders: Adders, folder: pathlib.Path, eventually: Eventually
) -> None:
    client = start(FOLDER + "versions: all}").client
    # The server is ready with the first of them; the others join it.
    eventually(lambda: list(client.get_model_metadata("m").versions) == ["1", "2", "10"])

    assert code_of(lambda: adders.ask(client, "3")) == "NOT_FOUND"
    assert code_of(lambda: adders.ask(client, "0")) == "NOT_FOUND"
    assert code_of(lambda: adders.ask(client, "-1")) == "INVALID_ARGUMENT"
    assert code_of(lambda: adders.ask(client, "1.0")) == "INVALID_ARGUMENT"
    assert code_of(lambda: client.get_model_config("other")) == "NOT_FOUND"
    assert code_of(lambda: client.get_inference_statistics("m", "3")) == "INVALID_ARGUMENT"
    assert adders.ask(client, "002") == 2


def test_one_bad_version_leaves_the_others_serving(start: Starter, adders: Adders, folder: pathlib.Path) -> None:
    (folder / "10" / "model.onnx").write_bytes(b"no model")

    client = start(FOLDER + "versions: all}").client

    assert adders.ask(client) == 2
    state, reason = adders.index(client)["10"]
    assert state == "UNAVAILABLE"
    assert "model.onnx" in reason
    assert code_of(lambda: adders.ask(client, "10")) == "UNAVAILABLE"


@pytest.mark.parametrize(
    ("extra", "fault"),
    [
        ("versions: [1, 5, 6]", "models[0].versions: {m} has no version 5, 6; it has 1, 2, 10"),
        ("versions: []", "models[0].versions: {m} has to be served in some version; it has 1, 2, 10"),
        ("versions: newest", "models[0].versions: should be "),
        ("versions: {latest: 0}", "models[0].versions.latest: should be greater than or equal to 1, not 0"),
        ("versions: {newest: 1}", "models[0].versions.newest: unknown key; "),
        ("versions: [0]", "models[0].versions[0]: should be greater than or equal to 1, not 0"),
        ("watch: often", 'models[0].watch: should be a valid boolean, not "often"'),
    ],
)
def test_a_bad_choice_of_versions_is_one_sentence(
    folder: pathlib.Path, tmp_path: pathlib.Path, extra: str, fault: str
) -> None:
    config = tmp_path / "servable.yaml"
    config.write_text(f"models:\n{FOLDER}{extra}}}")

    with pytest.raises(ConfigError) as caught:
        load_config(config)

    assert fault.format(m=folder) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_without_versions_and_versions_of_a_file_are_refused(adders: Adders, tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    adders.write("file.onnx", 1)
    config = tmp_path / "servable.yaml"
    config.write_text("models:\n- {name: a, path: empty}\n- {name: b, path: file.onnx, versions: all}")

    with pytest.raises(ConfigError) as caught:
        load_config(config)

    assert [problem.field for problem in caught.value.problems] == ["models[0].path", "models[1].versions"]
    assert "has no version folder, such as 1/model.onnx; add one" in str(caught.value)
    assert "is a single file; leave the key out" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "is_there"),
    [
        pytest.param("", False, id="no-file"),
        pytest.param("watch: true, ", True, id="watched-empty-folder"),
        pytest.param("versions: [1], ", True, id="listed-version"),
    ],
)
def test_a_model_that_is_not_required_is_told_of_and_loaded_when_it_comes(
    start: Starter,
    adders: Adders,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    is_there: bool,
) -> None:
    monkeypatch.setattr("trtnode.serving.models.watcher.POLL_S", 0.05)
    adders.write("other.onnx", 1)
    if is_there:
        (adders.folder / "m").mkdir()
    models = f"{FOLDER}{key}required: false}}\n- {{name: other, path: other.onnx, engine: native}}"
    running = start(models)

    assert running.client.is_server_ready()
    (told,) = (one for one in running.client.get_model_repository_index().models if one.name == "m")
    assert (told.version, told.state) == ("1", "UNAVAILABLE")
    assert told.reason == f"there is no version in {adders.folder / 'm'}; check the path"
    assert code_of(lambda: adders.ask(running.client)) == "UNAVAILABLE"

    adders.write("m/1/model.onnx", 5)
    eventually(lambda: running.client.is_model_ready("m"))

    assert adders.ask(running.client) == 5


def test_a_missing_file_of_a_model_that_is_not_required_is_loaded_on_request(
    start: Starter, adders: Adders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trtnode.serving.models.watcher.POLL_S", 600)
    adders.write("other.onnx", 1)
    models = "- {name: m, path: m.onnx, engine: native, required: false}\n- {name: other, path: other.onnx}"
    running = start(models, server="admin: {repository: true}")
    assert code_of(lambda: running.client.load_model("m")) == "INTERNAL"

    adders.write("m.onnx", 5)
    running.client.load_model("m")

    assert adders.ask(running.client) == 5


def test_startup_must_be_wait_or_native(adders: Adders, tmp_path: pathlib.Path) -> None:
    adders.write("m.onnx", 1)
    config = tmp_path / "servable.yaml"
    config.write_text("server: {startup: soon}\nmodels:\n- {name: m, path: m.onnx}")

    with pytest.raises(ConfigError, match=r"server\.startup: should be 'wait' or 'native', not \"soon\""):
        load_config(config)
