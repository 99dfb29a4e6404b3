"""The program imports nothing from the folder that it is started in, whatever the names of the files there."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence

import pytest

pytestmark = pytest.mark.release

ROOT = pathlib.Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
SCRIPT = [str(pathlib.Path(sys.executable).with_name("trtnode"))]
MODULE = [sys.executable, "-m", "trtnode"]

HOSTILE = """
with open({marker!r}, "a") as marker:
    marker.write(__name__ + "\\n")
raise ImportError("this is not the module that was meant")
"""
OURS = {"trtnode", "engines", "serving", "protos", "partitioner", "bench"}
LIBRARIES = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
SAMPLES = """
import numpy
def samples():
    arrays = numpy.load({file!r})
    for image in arrays["image"][:10]:
        yield {{"image": image[None]}}
"""


PROGRAMS = {
    "script": (SCRIPT, OURS | LIBRARIES | sys.stdlib_module_names),
    # Python itself imports from the current folder before it comes to us: its own library, and trtnode.
    "module": (MODULE, (OURS | LIBRARIES) - {"trtnode"} - sys.stdlib_module_names),
}
"""Commands that start the program, with the names of the files that it is started beside.

They differ until the program has its path; what it starts is the same."""


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    command, names = PROGRAMS[getattr(request, "param", "script")]
    hostile = HOSTILE.format(marker=str(tmp_path / "marker"))
    for name in names | {"sitecustomize", "usercustomize"}:
        (tmp_path / f"{name}.py").write_text(hostile)
    for name in OURS & names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(hostile)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return command


@pytest.fixture
def hostile(program: Sequence[str], tmp_path: pathlib.Path) -> Iterator[None]:
    """None of the modules there may have been imported at the end of the test."""
    yield
    marker = tmp_path / "marker"
    assert not marker.exists(), marker.read_text().split()


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_commands_import_nothing_from_the_current_folder(program: Sequence[str], tmp_path: pathlib.Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", "model.onnx")

    for arguments in (
        ["explain", "model.onnx"],
        ["compile", "model.onnx", "-o", "compiled.onnx", "--engine", "openvino"],
        ["run", "compiled.onnx", "--inputs", str(DIGITS / "test.npz"), "--outputs", "answers.npz"],
    ):
        subprocess.run([*program, *arguments], check=True, capture_output=True)


@pytest.mark.usefixtures("hostile")
def test_a_function_that_is_named_is_found_there(program: Sequence[str]) -> None:
    pathlib.Path("my_samples.py").write_text(SAMPLES.format(file=str(DIGITS / "test.npz")))

    command = [*program, "calibrate", str(DIGITS / "digits.onnx"), "--data", "my_samples:samples"]
    subprocess.run([*command, "-o", "ranges.json"], check=True, capture_output=True)

    assert pathlib.Path("ranges.json").exists()


@pytest.mark.usefixtures("hostile")
def test_a_server_with_workers_imports_nothing_from_the_current_folder(program: Sequence[str]) -> None:
    pathlib.Path("servable.yaml").write_text(
        "server: {grpc: {port: 0, workers: 2}, http: {port: 0}}\ncache: {dir: cache}\n"
        f"models: [{{name: digits, path: {DIGITS}/digits.onnx, engine: openvino}}]\n"
    )
    with pathlib.Path("log").open("w") as log:
        server = subprocess.Popen([*program, "serve", "--config", "servable.yaml"], stderr=log)
    try:
        address = wait_ready(server)
        image = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [1] * 64}
        body = json.dumps({"inputs": [image]}).encode()
        with urllib.request.urlopen(f"http://{address}/v2/models/digits/infer", body, timeout=60) as answer:
            assert b'"outputs"' in answer.read()
    finally:
        server.terminate()
        assert server.wait(60) == 0


def wait_ready(server: subprocess.Popen[bytes]) -> str:
    """Return the address of a server's HTTP port when it is ready."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        log = pathlib.Path("log").read_text()
        assert server.poll() is None, log
        if "ready on" in log:
            return "127.0.0.1:" + re.search(r"HTTP on 127.0.0.1:(\d+)", log)[1]
        time.sleep(0.05)
    raise AssertionError(log)
