"""Files appear whole or not at all, and models of any size load from them."""

from __future__ import annotations

import errno
import hashlib
import os
import pathlib
from typing import Any

import numpy as np
import onnx
import pytest

from comparison import AssertSame, RunPlainly
from model_texts import parse
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.files import sha256_of_file, write_atomically, write_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import OutputFileError
from trtnode.partitioner.errors import ExternalDataError
from workshop import Workshop

WEIGHTS = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
FEEDS = {"x": np.linspace(0, 1, 128, dtype=np.float32).reshape(2, 64)}


@pytest.fixture(scope="module")
def source(shared_workshop: Workshop) -> pathlib.Path:
    proto = parse(
        "g (float[N,64] x) => (float[N,64] y, float[4] k)"
        " <float[4] k = {1,2,3,4}> { m = MatMul(x, w) r = Relu(m) y = MatMul(r, w) }",
        w=WEIGHTS,
    )
    return shared_workshop.write(proto)


@pytest.fixture(scope="module")
def compiled(source: pathlib.Path, shared_workshop: Workshop) -> CompiledModel:
    return shared_workshop.compile(source, native_ops=("Relu",))


def names(folder: pathlib.Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_file_is_written_and_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"

    write_atomically(path, b"one")
    write_atomically(path, b"two")

    assert path.read_bytes() == b"two"
    assert names(tmp_path) == ["file"]
    assert sha256_of_file(path) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        pytest.param("missing/file", "No such file or directory", id="missing-folder"),
        pytest.param("a-file/file", "Not a directory", id="folder-is-a-file"),
        pytest.param("a-folder", "Is a directory", id="target-is-a-folder"),
        pytest.param("n" * 300, "File name too long", id="name-too-long"),
    ],
)
def test_place_that_can_not_be_written_is_an_error(target: str, reason: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a-file").touch()
    (tmp_path / "a-folder").mkdir()

    with pytest.raises(OutputFileError, match=rf"can't be written \({reason}\)\. Check the folder, its permissions"):
        write_atomically(tmp_path / target, b"data")

    assert names(tmp_path) == ["a-file", "a-folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_is_an_error(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(OutputFileError, match="Permission denied"):
        write_atomically(tmp_path / "file", b"data")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_full_disk_leaves_the_old_file_alone(
    step: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"the file before")

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (pathlib.Path, "replace")), fail)

    with pytest.raises(OutputFileError, match="No space left on device"):
        write_atomically(path, b"data")

    assert path.read_bytes() == b"the file before"
    assert names(tmp_path) == ["file"]


def test_compile_to_a_missing_folder_is_an_error(compiled: CompiledModel, tmp_path: pathlib.Path) -> None:
    with pytest.raises(OutputFileError, match=r"missing/out\.onnx: can't be written"):
        compiled.save(tmp_path / "missing" / "out.onnx")


def test_small_model_is_one_file(compiled: CompiledModel, tmp_path: pathlib.Path) -> None:
    compiled.save(tmp_path / "out.onnx")

    assert names(tmp_path) == ["out.onnx"]


def test_large_model_puts_engines_and_weights_beside_it(
    compiled: CompiledModel, source: pathlib.Path, tmp_path: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    path = tmp_path / "large.onnx"

    write_model(compiled.model, path, inline_limit_bytes=1000)

    assert sorted(p.rpartition(".")[2] for p in names(tmp_path)) == ["data", "engine", "engine", "onnx"]
    assert path.stat().st_size < 16_000
    executable = open_model(path)
    assert executable.facts.segments == 2
    assert executable.facts.rejected == ()
    same(executable.run(FEEDS), plain(source, FEEDS), 1e-4)
    same(open_model(path, use_engines=False).run(FEEDS), plain(source, FEEDS), 1e-4)
    same(plain(path, FEEDS), plain(source, FEEDS), 1e-4)


def test_sidecars_are_named_by_their_content(compiled: CompiledModel, tmp_path: pathlib.Path) -> None:
    write_model(compiled.model, tmp_path / "large.onnx", inline_limit_bytes=1000)

    for path in tmp_path.iterdir():
        if path.suffix != ".onnx":
            assert path.name.split(".")[-2] == sha256_of_file(path)[:32]
    sidecars = [
        a.s.decode()
        for n in onnx.load(tmp_path / "large.onnx", load_external_data=False).graph.node
        for a in n.attribute
        if a.name == "engine_file"
    ]
    assert sorted(sidecars) == [n for n in names(tmp_path) if n.endswith(".engine")]


def test_large_model_may_be_saved_more_than_once(
    compiled: CompiledModel, tmp_path: pathlib.Path, same: AssertSame
) -> None:
    before = compiled.model.SerializeToString(deterministic=True)

    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_model(compiled.model, tmp_path / folder / "large.onnx", inline_limit_bytes=1000)

    assert compiled.model.SerializeToString(deterministic=True) == before
    assert names(tmp_path / "one") == names(tmp_path / "two")
    assert open_model(tmp_path / "two" / "large.onnx").facts.segments == 2


def test_full_disk_leaves_the_large_model_in_memory_whole(
    compiled: CompiledModel, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compiled.model.SerializeToString(deterministic=True)
    replace, done = pathlib.Path.replace, list[pathlib.Path]()

    def fill_up(self: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        if done:
            raise OSError(errno.ENOSPC, "No space left on device")
        done.append(target)
        return replace(self, target)

    monkeypatch.setattr(pathlib.Path, "replace", fill_up)

    with pytest.raises(OutputFileError, match="No space left"):
        write_model(compiled.model, tmp_path / "large.onnx", inline_limit_bytes=1000)

    assert compiled.model.SerializeToString(deterministic=True) == before
    assert "large.onnx" not in names(tmp_path)


def test_large_model_can_be_compiled(
    source: pathlib.Path,
    workshop: Workshop,
    in_process: InProcessWorker,
    monkeypatch: pytest.MonkeyPatch,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    monkeypatch.setitem(write_model.__kwdefaults__, "inline_limit_bytes", 1000)

    compiled = workshop.compile(source, native_ops=("Relu",), worker=in_process)
    path = workshop.folder / "large.onnx"
    compiled.save(path)

    executable = open_model(path)
    assert executable.facts.segments == 2
    same(executable.run(FEEDS), plain(source, FEEDS), 1e-4)
    same(plain(path, FEEDS), plain(source, FEEDS), 1e-4)


def test_missing_weights_are_an_error_that_names_the_file(compiled: CompiledModel, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "large.onnx"
    write_model(compiled.model, path, inline_limit_bytes=1000)
    next(tmp_path.glob("*.data")).unlink()

    with pytest.raises(ExternalDataError, match=r"'w' should be in 'large\.onnx\..*\.data', but there is no such file"):
        open_model(path)


def test_moved_model_takes_its_sidecars_along(compiled: CompiledModel, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "before"
    folder.mkdir()
    write_model(compiled.model, folder / "large.onnx", inline_limit_bytes=1000)

    folder.rename(tmp_path / "after")

    assert open_model(tmp_path / "after" / "large.onnx").facts.segments == 2
