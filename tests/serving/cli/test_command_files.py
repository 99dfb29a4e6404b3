"""Files that commands can't use, and those that they must not replace."""

from __future__ import annotations

import pathlib
import shutil

import numpy as np
import pytest

from trtnode.serving.cli.program import main

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
DIGITS = EXAMPLES / "digits.onnx"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A working directory with the model ``m.onnx`` and inputs for it, ``in.npz``."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS, "m.onnx")
    np.savez("in.npz", image=np.zeros((4, 1, 8, 8), np.float32))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "file"),
    [
        pytest.param("compile m.onnx -o m.onnx", "m.onnx", id="compile"),
        pytest.param("compile m.onnx -o ./link.onnx", "m.onnx", id="compile-link"),
        pytest.param("calibrate m.onnx --data in.npz -o m.onnx", "m.onnx", id="calibrate"),
        pytest.param("calibrate m.onnx --data in.npz -o in.npz", "in.npz", id="calibrate-data"),
        pytest.param("explain m.onnx --html m.onnx", "m.onnx", id="explain"),
        pytest.param("run m.onnx --inputs in.npz --outputs in.npz", "in.npz", id="run"),
    ],
)
def test_no_command_writes_over_what_it_reads(
    command: str, file: str, here: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pathlib.Path("link.onnx").symlink_to("m.onnx")
    before = (here / file).read_bytes()

    code = main(command.split())

    assert code == 2
    assert "this file is read, so nothing is written in its place. Name another one" in capsys.readouterr().err
    assert (here / file).read_bytes() == before


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        pytest.param(None, "given.npz: there is no such file. Check the path.", id="missing"),
        pytest.param({"picture": np.zeros(3)}, "given.npz: Input 'image' is missing", id="other-name"),
        pytest.param({"image": np.zeros((1, 1, 8, 7), np.float32)}, "given.npz: Input 'image' must be", id="shape"),
        pytest.param({"image": np.array([None])}, "given.npz: array 'image' holds Python objects.", id="objects"),
        pytest.param({}, "given.npz: Input 'image' is missing", id="empty"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_also_where_nothing_is_built(
    arrays: dict[str, np.ndarray] | None,
    message: str,
    here: pathlib.Path,
    cache: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compiling = ["compile", "m.onnx", "-o", "c.onnx", "--cache", str(cache)]
    assert main(compiling) == 0
    if arrays is not None:
        np.savez(here / "given.npz", **arrays)

    code = main([*compiling, "--check-inputs", "given.npz"])

    assert code == 1
    assert message in capsys.readouterr().err


def test_a_compiled_model_is_not_calibrated(
    here: pathlib.Path, cache: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compile", "m.onnx", "-o", "c.onnx", "--cache", str(cache)])

    code = main(["calibrate", "c.onnx", "--data", "in.npz", "-o", "r.json"])

    assert code == 1
    assert "c.onnx: this model is compiled already. Name the model that it was made from." in capsys.readouterr().err


def test_a_file_without_fallback_says_that_only_its_engines_run_it(
    here: pathlib.Path, cache: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compile", "m.onnx", "-o", "c.onnx", "--cache", str(cache), "--strip-fallback"])

    code = main(["run", "c.onnx", "--native", "--inputs", "in.npz", "--outputs", "out.npz"])

    assert code == 1
    assert "c.onnx: only its engines run this model, since it has no native fallback" in capsys.readouterr().err


def test_a_pattern_that_matches_no_node_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert main(["explain", str(DIGITS), "--native-nodes", "conv1", "--native-nodes", "/nothing/*"]) == 0

    assert [r.getMessage() for r in caplog.records if "matches no node" in r.getMessage()] == [
        "native_nodes has '/nothing/*', which matches no node of the model, so it has no effect"
    ]
