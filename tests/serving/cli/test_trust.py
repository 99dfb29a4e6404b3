"""Keys and signatures, as a user of the commands and of servable.yaml meets them."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib

import numpy as np
import onnx
import pytest

from edited_models import edited, with_field
from trtnode.engines.compile.opening import open_model
from trtnode.serving.cli.program import GROUP, main
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.models.loader import engine_loader

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "digits"
COMMANDS = ("compile", "explain", "keys", "merge", "run", "sign", "strip")


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of this checkout, whatever checkout is installed."""
    points = [
        importlib.metadata.EntryPoint(name, f"trtnode.serving.cli.arguments:{name.upper()}", GROUP) for name in COMMANDS
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("compiled")
    path = folder / "compiled.onnx"
    cache = str(folder / "cache")
    code = main(["compile", str(EXAMPLES / "digits.onnx"), "-o", str(path), "--all-engines", "--cache", cache])
    assert code == 0
    return path


@pytest.fixture
def key(tmp_path: pathlib.Path) -> pathlib.Path:
    assert main(["keys", "generate", "-o", str(tmp_path / "signer")]) == 0
    return tmp_path / "signer"


def run(model: pathlib.Path, folder: pathlib.Path, *options: object) -> int:
    files = ["--inputs", EXAMPLES / "test.npz", "--outputs", folder / "results.npz", "--cache", folder / "cache"]
    return main(["run", str(model), *map(str, (*files, *options))])


def test_signed_model_runs_in_its_engines_for_whoever_trusts_the_key(
    compiled: pathlib.Path, key: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signed = tmp_path / "signed.onnx"
    codes = [main(["sign", str(compiled), "--key", str(key), "-o", str(signed), "--json"])]
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])

    codes += [run(signed, tmp_path, "--trust-key", f"{key}.pub")]
    trusted = capsys.readouterr().out
    codes += [run(compiled, tmp_path, "--trust-key", f"{key}.pub")]

    assert codes == [0, 0, 0]
    assert facts == {"output": str(signed), "engines_signed": 1}
    assert "1 engine segment\n" in trusted
    assert "0 engine segments" in capsys.readouterr().out


def test_model_is_signed_in_place_unless_an_output_is_named(
    compiled: pathlib.Path, key: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(compiled.read_bytes())

    code = main(["sign", str(copy), "--key", str(key)])

    assert (code, capsys.readouterr().out.splitlines()[-1]) == (0, f"Wrote {copy}: 1 engine signed.")
    assert copy.read_bytes() != compiled.read_bytes()


def write_config(folder: pathlib.Path, model: pathlib.Path, trust: str) -> pathlib.Path:
    path = folder / "servable.yaml"
    path.write_text(f"models: [{{name: m, path: {model}}}]\ncache: {{dir: cache}}\ntrust: {trust}\n")
    return path


@pytest.mark.parametrize(
    ("trust", "refused"),
    [
        pytest.param("{}", 0, id="openvino-needs-no-signature"),
        pytest.param("{keys: [signer.pub]}", 1, id="unless-there-are-keys"),
        pytest.param("{keys: [signer.pub], allow_unsigned: [openvino]}", 0, id="or-it-is-allowed-beside-them"),
        pytest.param("{allow_unsigned: []}", 1, id="or-nothing-may-be-unsigned"),
    ],
)
def test_server_runs_the_engines_that_its_configuration_trusts_and_builds_others_again(
    trust: str, refused: int, compiled: pathlib.Path, key: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    config = load_config(write_config(tmp_path, compiled, trust), {})

    executable = engine_loader(config)(config.models[0])

    facts = executable.facts
    assert (facts.segments, len(facts.rejected), facts.engines_built) == (1, refused, refused)


@pytest.mark.parametrize(
    ("trust", "problem"),
    [
        (
            "{keys: [gone.pub]}",
            "trust.keys[0]: {folder}/gone.pub: can't be read (No such file or directory); check",
        ),
        (
            "{keys: [signer.pub, signer]}",
            "trust.keys[1]: {folder}/signer: is no Ed25519 public key; give the .pub file",
        ),
        ("{keys: signer.pub}", "trust.keys: should be a list"),
        (
            "{allow_unsigned: [abacus]}",
            "trust.allow_unsigned[0]: should be 'tensorrt', 'tensorrt-rtx', 'openvino' or 'sparse', not \"abacus\"",
        ),
    ],
)
def test_trust_that_can_not_be_read_is_told_with_its_line(
    trust: str, problem: str, key: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = write_config(tmp_path, EXAMPLES / "digits.onnx", trust)

    with pytest.raises(ConfigError) as caught:
        load_config(path, {})

    assert str(caught.value).startswith(f"{path}:3: {problem.format(folder=tmp_path)}")


def test_one_command_builds_for_several_libraries_with_one_cut(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OpenVINO leaves GlobalLpPool native, so TensorRT for RTX does, too."""
    text = "g (float[2,8,1,1] x) => (float[2,8,1,1] y) { a = Relu(x) b = GlobalLpPool<p = 2>(a) c = Neg(b) y = Exp(c) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), tmp_path / "m.onnx")
    both = tmp_path / "both.onnx"
    command = f"compile {tmp_path}/m.onnx -o {both} --engine openvino,tensorrt-rtx --targets sm86 --no-cache --json"

    assert main(command.split()) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["explain", str(both), "--no-cache", "--json"]) == 0
    engines = json.loads(capsys.readouterr().out)["engines"]

    assert (facts["engines_built"], facts["unchecked"]) == (4, ["no GPU here"])
    assert [one["backend"] for one in engines] == ["openvino", "tensorrt-rtx"] * 2
    assert [one["problem"] is None for one in engines] == [True, False] * 2
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8, 1, 1)
    results = [open_model(path).run({"x": x})["y"] for path in (tmp_path / "m.onnx", both)]
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_files_of_one_source_become_one_whose_engines_are_listed_and_left_out(
    compiled: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere.onnx"
    elsewhere.write_bytes(compiled.read_bytes())
    elsewhere = edited(elsewhere, with_field(device={"features": "another", "name": "another"}))
    merged, left = tmp_path / "merged.onnx", tmp_path / "left.onnx"

    codes = [main(["merge", str(elsewhere), str(compiled), "-o", str(merged), "--json"])]
    facts = json.loads(capsys.readouterr().out)
    codes += [run(merged, tmp_path), main(["explain", str(merged), "--no-cache"])]
    listed = capsys.readouterr().out.splitlines()[-2:]
    codes += [main(["strip", str(merged), "--fallback", "-o", str(left)]), run(left, tmp_path)]
    codes += [main(["strip", str(merged), "--keep", "openvino"])]

    assert (codes, facts["engines"]) == ([0] * 6, 2)
    assert "another" in listed[0]
    assert listed[1].endswith("runs here")


BUILD = f"compile {EXAMPLES / 'digits.onnx'} -o {{o}} --engine"


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        pytest.param("merge {c} missing.onnx -o {o}", 1, "missing.onnx", id="missing"),
        pytest.param(f"merge {{c}} {EXAMPLES / 'digits.onnx'} -o {{o}}", 1, "can't be merged", id="not-compiled"),
        pytest.param("strip {c} -o {o}", 2, "one of the arguments --keep --fallback is required", id="nothing-to-do"),
        pytest.param("strip {c} -o {o} --keep sparse", 1, "has no engine of sparse", id="no-such-engine"),
        pytest.param(f"strip {EXAMPLES / 'digits.onnx'} -o {{o}} --fallback", 1, "no node of it", id="no-engine"),
        pytest.param(f"{BUILD} openvino,native", 2, "'native' can't be one of several", id="native-beside-another"),
        pytest.param(f"{BUILD} openvino,tensorrtx", 2, "'tensorrtx' should be one of auto", id="unknown-library"),
    ],
)
def test_files_that_can_not_be_merged_or_stripped_are_refused(
    command: str,
    code: int,
    message: str,
    compiled: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out.onnx"

    assert main(command.format(c=compiled, o=output).split()) == code

    assert message in capsys.readouterr().err
    assert not output.exists()
