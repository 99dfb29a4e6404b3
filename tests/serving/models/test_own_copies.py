"""Files that change under a server: it answers from copies of its own until it is told to load them again."""

from __future__ import annotations

import gc
import os
import pathlib
import shutil

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
from onnx import TensorProto, helper

from tests.serving.conftest import Adders, Eventually, Running, Starter, given
from tests.serving.models.test_reload import CLIENTS, Load
from trtnode.engines.inputs.source_copies import SourceCopies

ADMIN = "admin: {repository: true}"
ROWS, COLUMNS = 1024, 128
TABLE = "- {name: m, path: m.onnx, engine: native}"


def fill(folder: pathlib.Path, value: float) -> None:
    """Write the table's data over what is there."""
    with (folder / "w.bin").open("r+b" if (folder / "w.bin").exists() else "xb") as file:
        file.write(np.full((ROWS, COLUMNS), value, np.float32).tobytes())


@pytest.fixture
def table(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model that looks rows up in a table of half a megabyte, which stands in a file of its own."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[ROWS, COLUMNS], data_location=1)
    weights.external_data.add(key="location", value="w.bin")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "table",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", COLUMNS])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    fill(tmp_path, 1)
    return tmp_path


def look_up(running: Running) -> set[float]:
    rows = given("i", np.arange(ROWS))
    return set(running.client.infer("m", [rows]).as_numpy("y").ravel().tolist())


def test_data_that_is_truncated_while_it_is_served_ends_no_server(table: pathlib.Path, start: Starter) -> None:
    running = start(TABLE)

    os.truncate(table / "w.bin", 0)

    assert look_up(running) == {1}


def test_data_that_is_overwritten_in_place_changes_answers_at_the_next_load(
    table: pathlib.Path, start: Starter
) -> None:
    running = start(TABLE, server=ADMIN)

    fill(table, 7)
    before = look_up(running)
    running.client.load_model("m")

    assert (before, look_up(running)) == ({1}, {7})


def test_a_version_that_is_replaced_lets_its_copy_go_without_the_garbage_collector(
    table: pathlib.Path, start: Starter, eventually: Eventually, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)
    cache = tmp_path / "cache"
    running = start(TABLE, server=ADMIN, cache=f"{{dir: {cache}}}")
    first = held_in(cache)

    fill(table, 7)
    running.client.load_model("m")

    assert len(first) == 1
    eventually(lambda: len(held_in(cache)) == 1 and not held_in(cache) & first)


def held_in(cache: pathlib.Path) -> set[pathlib.Path]:
    """Return the copies in a cache that this process holds."""
    opened = [one.readlink() for one in pathlib.Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return {path for path in opened if path.parent.parent == cache}


def test_a_restart_finds_the_copy(table: pathlib.Path, start: Starter, tmp_path: pathlib.Path) -> None:
    cache = f"{{dir: {tmp_path / 'cache'}}}"
    start(TABLE, cache=cache).server.stop(5)
    (copy,) = (tmp_path / "cache" / "sources").iterdir()
    inode = (copy / "w.bin").stat().st_ino

    running = start(TABLE, cache=cache)
    os.truncate(table / "w.bin", 0)

    assert look_up(running) == {1}
    assert [one / "w.bin" for one in copy.parent.iterdir()] == [copy / "w.bin"]
    assert (copy / "w.bin").stat().st_ino == inode


def test_without_a_cache_the_copy_is_temporary(
    table: pathlib.Path, start: Starter, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    running = start(TABLE, cache=f"{{dir: {tmp_path / 'file'}}}")

    os.truncate(table / "w.bin", 0)

    assert look_up(running) == {1}


def test_a_model_whose_copy_has_no_room_is_refused_in_one_sentence(
    table: pathlib.Path, start: Starter, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("trtnode.serving.models.isolation.TemporaryFolder", _no_room)
    cache = f"{{dir: {table / 'cache'}, max_gb: 0.000001}}"
    running = start("- {name: m, path: m.onnx, engine: native, required: false}", cache=cache)

    def reason() -> str:
        return running.client.get_model_repository_index().models[0].reason

    eventually(lambda: bool(reason()))
    assert reason().startswith(f"{table / 'm.onnx'}: its files can't be copied (No space left on device).")


def _no_room() -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("engine", ["native", "openvino"])
def test_a_file_that_is_copied_over_gives_old_answers_until_it_is_loaded(
    start: Starter, adders: Adders, eventually: Eventually, engine: str
) -> None:
    adders.write("m.onnx", 1)
    adders.write("new.onnx", 2)
    running = start(f"- {{name: m, path: m.onnx, engine: {engine}, measure: false}}", server=ADMIN)

    with Load(running.address, adders) as load:
        shutil.copyfile(adders.folder / "new.onnx", adders.folder / "m.onnx")  # the same inode, as with cp
        seen = len(load.answers)
        eventually(lambda: len(load.answers) > seen + CLIENTS)
        before = set(load.answers)
        running.client.load_model("m")

    assert load.errors == []
    assert (before, adders.ask(running.client)) == ({1}, 2)


def test_a_native_path_that_is_opened_late_is_that_of_the_old_file(start: Starter, adders: Adders) -> None:
    adders.write("m.onnx", 1)
    running = start("- {name: m, path: m.onnx, engine: openvino, measure: false, all_engines: true}")

    (adders.folder / "m.onnx").write_bytes(adders.content(2))
    answer = running.client.infer("m", [given("x", np.full((1, 1), np.nan, np.float32))])

    assert np.isnan(answer.as_numpy("y")).all()
    assert adders.ask(running.client) == 1


def test_an_error_names_the_file_and_not_its_copy(start: Starter, adders: Adders) -> None:
    adders.write("m.onnx", 1)
    running = start("- {name: m, path: m.onnx, engine: native, required: false}", server=ADMIN)
    model = onnx.load(adders.folder / "m.onnx")
    model.graph.node[0].op_type = "NoSuchOperator"
    (adders.folder / "m.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(triton.InferenceServerException) as caught:
        running.client.load_model("m")

    assert str(adders.folder / "m.onnx") in str(caught.value)
    assert "sources" not in str(caught.value)


def test_copies_are_made_of_files_that_a_model_may_read_and_no_others(
    table: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("m.onnx", "w.bin"):
        (table / name).rename(folder / name)
    (folder / "link").symlink_to(tmp_path / "secret")

    names = ["w.bin", "link", "../secret", str(tmp_path / "secret"), "gone", "a\0b"]
    copy = SourceCopies(tmp_path / "cache", 1 << 30).take(folder / "m.onnx", names, None)

    assert sorted(copy.files) == ["m.onnx", "w.bin"]
    assert sorted(file.name for file in copy.path.parent.iterdir()) == ["m.onnx", "w.bin"]
    assert {file.stat().st_mode & 0o77 for file in (copy.path.parent, *copy.path.parent.iterdir())} == {0}
