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


def test_values_that_do_not_diverge_have_no_column_for_marks(
    tmp_path: pathlib.Path, inputs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = tmp_path / "compiled.onnx"
    assert main(["compile", str(DIGITS), "-o", str(compiled), "--all-engines", "--no-cache"]) == 0
    capsys.readouterr()

    assert align(compiled, inputs) == 0

    heading = capsys.readouterr().out.splitlines()[2]
    columns = [word.strip() for word in heading.split("┃")[1:-1]]
    assert columns == ["value", "made by", "cosine", "max abs", "SQNR dB"]


def test_align_of_a_right_model_ends_with_0(
    inputs: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compile", str(DIGITS), "-o", str(tmp_path / "compiled.onnx"), "--no-cache"])
    capsys.readouterr()

    assert align(tmp_path / "compiled.onnx", inputs) == 0
    assert capsys.readouterr().out.startswith("No value diverges: 1 value compared, each equal to 60 dB or better.")


def test_labels_beside_the_inputs_are_left_out(
    inputs: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["compile", str(DIGITS), "-o", str(tmp_path / "compiled.onnx")]) == 0
    np.savez(tmp_path / "labelled.npz", label=np.zeros(3), **np.load(inputs))

    assert align(tmp_path / "compiled.onnx", tmp_path / "labelled.npz") == 0
    assert "Array 'label' is no input of the model; it is left out" in caplog.messages


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        pytest.param({"picture": np.zeros((1, 1, 8, 8), np.float32)}, "Input 'image' is missing", id="name"),
        pytest.param({"image": np.zeros((1, 1, 9, 8), np.float32)}, "but is float32[1, 1, 9, 8]", id="shape"),
        pytest.param({"image": np.zeros((1, 1, 8, 8))}, "but is float64[1, 1, 8, 8]", id="type"),
    ],
)
def test_inputs_that_do_not_fit_are_told(
    array: dict[str, np.ndarray],
    sentence: str,
    faulty: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez(tmp_path / "given.npz", **array)

    assert align(faulty, tmp_path / "given.npz") == 1

    assert sentence in capsys.readouterr().err


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
