"""Pipes, devices, folders, and links to them, in the place of a model."""

from __future__ import annotations

import os
import pathlib

import pytest

from tests.serving.conftest import Adders, Eventually, Starter
from trtnode.engines.inputs.npz_reader import open_arrays
from trtnode.partitioner.model.regular_files import read_regular
from trtnode.serving.config.triton_repository import models_in
from trtnode.serving.errors import ConfigError

KINDS = ("pipe", "device", "folder")


def put(path: pathlib.Path, kind: str) -> None:
    """Put something in place that is no file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_model_that_is_no_file_fails_with_a_sentence(
    start: Starter, tmp_path: pathlib.Path, eventually: Eventually, kind: str
) -> None:
    put(tmp_path / "odd.onnx", kind)
    running = start(f"- {{name: m, path: {tmp_path / 'odd.onnx'}}}\n", wait=False)

    eventually(lambda: running.server.failure is not None)

    assert "it is no regular file, but a folder, pipe or device" in str(running.server.failure)


def test_a_version_that_is_no_file_stops_no_later_one(start: Starter, adders: Adders, eventually: Eventually) -> None:
    adders.write("m/1/model.onnx", 1)
    running = start(f"- {{name: m, path: {adders.folder / 'm'}, watch: true, engine: native}}\n")

    put(adders.folder / "m" / "2" / "model.onnx", "pipe")
    eventually(lambda: "regular file" in adders.index(running.client).get("2", ("", ""))[1])
    adders.write("m/3/model.onnx", 3)

    eventually(lambda: adders.ask(running.client) == 3)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_files_is_read(tmp_path: pathlib.Path, kind: str) -> None:
    put(tmp_path / "odd", kind)

    with pytest.raises(OSError, match="no regular file"):
        read_regular(tmp_path / "odd")


@pytest.mark.parametrize("kind", KINDS)
def test_samples_that_are_no_file_are_refused(tmp_path: pathlib.Path, kind: str) -> None:
    put(tmp_path / "samples.npz", kind)

    with pytest.raises(OSError, match="no regular file"), open_arrays(tmp_path / "samples.npz"):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_of_a_repository_that_is_no_file_is_refused(adders: Adders, kind: str) -> None:
    adders.write("m/1/model.onnx", 1)
    put(adders.folder / "m" / "config.pbtxt", kind)

    with pytest.raises(ConfigError, match="no regular file"):
        models_in(adders.folder)
