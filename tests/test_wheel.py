"""The built wheel has all files of our packages, and two programs, also if it is built from the source archive."""

from __future__ import annotations

import configparser
import email
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

pytestmark = pytest.mark.release

ROOT = pathlib.Path(__file__).parents[1]

BUILT = {"trtnode/engines/sparse/kernels.so"}
"""Compiled into the wheel, where there is a C compiler."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the source archive, and the wheel that is built from that, as pip does."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: pathlib.Path) -> zipfile.Path:
    (file,) = built.glob("*.whl")
    return zipfile.Path(file)


def test_the_wheel_installs_nothing_but_our_packages(wheel: zipfile.Path) -> None:
    names = {"dist-info" if entry.name.endswith(".dist-info") else entry.name for entry in wheel.iterdir()}

    assert names == {"trtnode", "dist-info"}
    assert all(entry.name.startswith("trtnode-") for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))


def test_every_package_comes_with_all_that_is_in_its_folder(wheel: zipfile.Path) -> None:
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "trtnode").rglob("*.*")}
    there = {name for name in wheel.root.namelist() if name.startswith("trtnode/") and name[-1] != "/"}

    assert there - BUILT == {name for name in here - BUILT if not name.endswith(".pyc")}


def test_the_source_archive_has_what_is_needed_to_build_and_test(built: pathlib.Path) -> None:
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        there = {pathlib.PurePosixPath(name).parts[1] for name in archive.getnames()}

    assert there >= {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests", "examples", "configs", "docs"}


def test_an_index_can_show_it(wheel: zipfile.Path) -> None:
    (info,) = (entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    metadata = email.message_from_string((info / "METADATA").read_text(encoding="utf-8"))

    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# trtnode")
    assert {name.partition(" ::")[0] for name in metadata.get_all("Classifier", [])} >= {"Development Status", "Typing"}


@pytest.mark.parametrize(
    ("origin", "urls"),
    [
        pytest.param(
            "https://somebody:secret@git.example/team/trtnode.git",
            {"Source": "https://git.example/team/trtnode", "Issues": "https://git.example/team/trtnode/issues"},
            id="https-without-its-password",
        ),
        pytest.param("git@git.example:team/trtnode.git", {}, id="ssh"),
        pytest.param("/srv/trtnode", {}, id="folder"),
        pytest.param(None, {}, id="no-origin"),
    ],
)
def test_its_urls_are_those_of_the_checkout(tmp_path: pathlib.Path, origin: str | None, urls: dict[str, str]) -> None:
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)

    assert ProjectMetadata(str(tmp_path), PluginManager()).core.urls == urls


def test_it_brings_two_programs(wheel: zipfile.Path) -> None:
    (info,) = (entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    entry_points = configparser.ConfigParser()
    entry_points.read_string((info / "entry_points.txt").read_text(encoding="utf-8"))

    assert set(entry_points["console_scripts"]) == {"trtnode", "serve"}


def test_without_the_compiler_that_is_asked_for_it_has_no_kernels_and_says_so(
    built: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (archive,) = built.glob("*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation", str(archive)]

    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "CC": "no-such-compiler"}, capture_output=True, text=True, check=True
    )

    assert [file.name.partition("-py3-")[2] for file in tmp_path.glob("*.whl")] == ["none-any.whl"]
    assert "there is no C compiler" in done.stdout + done.stderr


USER = """
import importlib, pathlib, sys

names = ["engines", "serving", "protos", "partitioner", "bench"]
for name in names:
    theirs, ours = importlib.import_module(f"{name}.mine"), importlib.import_module(f"trtnode.{name}")
    assert pathlib.Path(theirs.__file__).parents[1] == pathlib.Path.cwd(), theirs
    assert sys.prefix in str(ours.__file__), ours

import trtnode

model = sys.argv[1]
assert trtnode.compile(model, "compiled.onnx", engine="openvino").report.segments
assert trtnode.load("compiled.onnx").facts.engine == "openvino"
with trtnode.serve("compiled.onnx", port=0, http_port=0) as server:
    assert server.address
"""


@pytest.fixture(scope="module")
def python(built: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The Python of an environment with the wheel alone, and the libraries of this one behind it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.parametrize("marked", [pytest.param(True, id="packages"), pytest.param(False, id="plain-folders")])
def test_it_works_beside_folders_of_the_users_with_the_same_names(
    python: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, *, marked: bool
) -> None:
    project = tmp_path / "project"
    for name in ("engines", "serving", "protos", "partitioner", "bench"):
        (project / name).mkdir(parents=True)
        (project / name / "mine.py").touch()
        if marked:
            (project / name / "__init__.py").touch()
    (project / "user.py").write_text(USER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(python.parents[1] / "cache"))
    model = str(ROOT / "examples" / "digits" / "digits.onnx")

    for command in (
        [python, "user.py", model],
        [python.with_name("trtnode"), "explain", model],
        [python, "-m", "trtnode", "explain", model],
    ):
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
