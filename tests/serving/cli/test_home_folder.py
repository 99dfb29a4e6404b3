"""Whole processes of users with an empty home folder, or without any."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from unprivileged import become

TRTNODE = [sys.executable, "-m", "trtnode"]
ROOT = pathlib.Path(__file__).parents[3]
DRIVER = """
import pathlib, sys
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server
config = load_config(pathlib.Path(sys.argv[1]))
server = Server(config, engine_loader(config))
server.start()
assert server.wait_ready(240), server.failure
server.stop(30)
"""
NO_TELEMETRY_SWITCH = ("CI", "TF_BUILD", "GITHUB_ACTIONS", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS")
"""Variables that keep ONNX Runtime from writing, and that machines of tests may have."""


@pytest.fixture
def workplace(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder that everybody may write to, with a model, inputs for it and a configuration of a server."""
    folder = tmp_path_factory.mktemp("workplace")
    text = "g (float[2] x) => (float[2] y) { a = Relu(x) y = Exp(a) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), folder / "m.onnx")
    np.savez(folder / "in.npz", x=np.zeros(2, np.float32))
    ports = "grpc: {port: 0}\n  http: {port: 0}\n"
    (folder / "servable.yaml").write_text(f"server:\n  {ports}models:\n  - {{name: m, path: m.onnx}}\n")
    for name in ("temporary", "home", "cache"):
        (folder / name).mkdir()
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return folder


def run(workplace: pathlib.Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without HOME and XDG_CACHE_HOME, unless they are given."""
    dropped = (*NO_TELEMETRY_SWITCH, "HOME", "XDG_CACHE_HOME")
    settings: Mapping[str, str] = {
        **{key: value for key, value in os.environ.items() if key not in dropped},
        "TMPDIR": str(workplace / "temporary"),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }
    return subprocess.run(command, cwd=workplace, env=settings, capture_output=True, text=True, timeout=280)


def as_nobody(workplace: pathlib.Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without an entry."""
    return run(workplace, *become(), *command)


def written_in(folder: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_user_without_home_folder_and_entry_compiles_without_a_cache_which_is_said_once(
    workplace: pathlib.Path,
) -> None:
    done = as_nobody(workplace, *TRTNODE, "compile", "m.onnx", "-o", "c.onnx")

    assert done.returncode == 0, done.stderr
    assert (workplace / "c.onnx").is_file()
    assert done.stderr.count("There is no engine cache") == 1
    assert "this user has no home folder, and XDG_CACHE_HOME is not set" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_user_without_home_folder_and_entry_runs_a_server(workplace: pathlib.Path) -> None:
    done = as_nobody(workplace, sys.executable, "-c", DRIVER, "servable.yaml")

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("There is no engine cache") == 1


def test_nothing_is_written_outside_the_cache(workplace: pathlib.Path) -> None:
    home = workplace / "home"
    in_home = {"HOME": str(home), "XDG_CACHE_HOME": str(workplace / "cache")}
    trtnode = [*TRTNODE, "--log-level", "error"]

    for command in (
        [*trtnode, "explain", "m.onnx"],
        [*trtnode, "compile", "m.onnx", "-o", "c.onnx"],
        [*trtnode, "run", "c.onnx", "--inputs", "in.npz", "--outputs", "out.npz"],
        [*trtnode, "run", "m.onnx", "--inputs", "in.npz", "--outputs", "out.npz", "--native"],
        [sys.executable, "-c", DRIVER, "servable.yaml"],
    ):
        done = run(workplace, *command, **in_home)
        assert done.returncode == 0, done.stderr

    assert written_in(home) == []
    assert written_in(workplace / "temporary") == []
    assert [path.name for path in (workplace / "cache").iterdir()] == ["trtnode"]
