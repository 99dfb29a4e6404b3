"""The command align, as a user types it."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import onnx
import pytest

from trtnode.serving.cli.program import main

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
DIGITS = EXAMPLES / "digits.onnx"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("inputs") / "inputs.npz"
    np.savez(path, image=np.load(EXAMPLES / "test.npz")["image"][:8])
    return path


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The digits, compiled, with one weight of the second convolution changed before."""
    folder = tmp_path_factory.mktemp("faulty")
    model = onnx.load(DIGITS)
    (name,) = (node.input[1] for node in model.graph.node if node.name == "conv2")
    (weights,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    array = onnx.numpy_helper.to_array(weights).copy()
    array[0] += 1
    weights.CopyFrom(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, folder / "changed.onnx")
    assert main(["compile", str(folder / "changed.onnx"), "-o", str(folder / "compiled.onnx"), "--no-cache"]) == 0
    return folder / "compiled.onnx"


def align(model: pathlib.Path, inputs: pathlib.Path, *options: str) -> int:
    return main(["align", str(model), "--reference", str(DIGITS), "--inputs", str(inputs), *options])


def test_align_names_the_engine_that_is_at_fault(
    faulty: pathlib.Path, inputs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert align(faulty, inputs) == 1

    assert capsys.readouterr().out.startswith("The first value that diverges is 'probabilities', made by segment_0")


def test_align_names_it_as_json_too(
    faulty: pathlib.Path, inputs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert align(faulty, inputs, "--json") == 1

    facts = json.loads(capsys.readouterr().out)
    assert (facts["aligned"], facts["first"]["name"], facts["first"]["stage"]) == (False, "probabilities", "segment_0")


def test_align_of_a_right_model_ends_with_0(
    inputs: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compile", str(DIGITS), "-o", str(tmp_path / "compiled.onnx"), "--no-cache"])
    capsys.readouterr()

    assert align(tmp_path / "compiled.onnx", inputs) == 0
    assert capsys.readouterr().out.startswith("No value diverges: 1 value compared, each equal to 60 dB or better.")


@pytest.mark.parametrize(
    ("model", "given", "sentence"),
    [
        pytest.param("missing.onnx", None, "missing.onnx: can't be read", id="no such model"),
        pytest.param(None, "missing.npz", "missing.npz: there is no such file", id="no such inputs"),
        pytest.param(str(DIGITS), None, "nothing to align. Compile it first", id="not compiled"),
    ],
)
def test_align_says_what_is_wrong(
    model: str | None,
    given: str | None,
    sentence: str,
    faulty: pathlib.Path,
    inputs: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = align(pathlib.Path(model) if model else faulty, pathlib.Path(given) if given else inputs)

    assert code in (1, 2)
    assert sentence in capsys.readouterr().err
