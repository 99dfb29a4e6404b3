from __future__ import annotations

import json
import pathlib
import re
import shutil
from collections.abc import Callable

import pytest

from trtnode.engines.build.options import CompileOptions
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.schema.json_schema import config_schema

MODEL = "models:\n- name: a\n  path: m.onnx\n"


def faults(path: pathlib.Path, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, environment or {})
    return str(caught.value).replace(f"{path.parent}/", "")


def test_everything_but_name_and_path_has_a_default(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write(MODEL)

    config = load_config(path, {})

    assert config.server.grpc.port == 8001
    assert config.server.http.port == 8002
    assert config.cache.dir is None  # the user's own
    model = config.models[0]
    assert (model.options.engine, model.options.precision, model.required, model.instances) == ("auto", "fp32", True, 1)


def test_relative_paths_start_at_the_folder_of_the_file(
    write: Callable[[str | bytes], pathlib.Path], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(MODEL + "cache: {dir: engines}")
    monkeypatch.chdir(tmp_path.parent)

    config = load_config(path.relative_to(tmp_path.parent), {})

    assert config.models[0].path == tmp_path / "m.onnx"
    assert config.cache.dir == tmp_path / "engines"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            MODEL + "  batchin: 3",
            "servable.yaml:4: models[0].batchin: unknown key; did you mean 'batching'?",
            id="unknown-key-names-the-nearest",
        ),
        pytest.param(
            MODEL + "server:\n  grpc:\n    hots: 1",
            "servable.yaml:6: server.grpc.hots: unknown key; did you mean 'host'?",
            id="unknown-key-in-a-section",
        ),
        pytest.param(
            MODEL + "server:\n  limits:\n    http_header_bytes: 100",
            "servable.yaml:6: server.limits.http_header_bytes: should be greater than or equal to 1024, not 100",
            id="a-header-needs-some-bytes",
        ),
        pytest.param(
            MODEL + "server: {limits: {http_header_timeout_s: 0}}",
            "servable.yaml:4: server.limits.http_header_timeout_s: should be greater than 0, not 0",
            id="a-header-needs-some-time",
        ),
        pytest.param(
            MODEL + "server: {http: {zzz: 1}}",
            "servable.yaml:4: server.http.zzz: unknown key; "
            "known here: host, port, allowed_hosts, allowed_origins, tls.",
            id="unknown-key-without-a-near-one-lists-the-known",
        ),
        pytest.param(
            MODEL + "  versions: {lates: 2}",
            "servable.yaml:4: models[0].versions.lates: unknown key; did you mean 'latest'?",
            id="unknown-key-in-one-form-of-a-choice",
        ),
        pytest.param(
            MODEL + "  shapes:\n  - x: {mi: [1], min: [1], opt: [1], max: [1]}",
            "servable.yaml:5: models[0].shapes[0].x.mi: unknown key; did you mean 'min'?",
            id="unknown-key-below-a-free-name",
        ),
        pytest.param(
            MODEL + "  batching:\n    max_batch_size: eight",
            'servable.yaml:5: models[0].batching.max_batch_size: should be a valid integer, not "eight"',
            id="wrong-type-below-a-key",
        ),
        pytest.param(
            MODEL + "  instances: true",
            "servable.yaml:4: models[0].instances: should be a valid integer, not true",
            id="true-is-no-number",
        ),
        pytest.param(
            MODEL + "  threads: '2'",
            'servable.yaml:4: models[0].threads: should be a valid integer, not "2"',
            id="quoted-number-is-no-number",
        ),
        pytest.param(
            "models:\n- name: 5\n  path: m.onnx",
            "servable.yaml:2: models[0].name: should be a valid string, not 5",
            id="number-is-no-name",
        ),
        pytest.param(
            MODEL + "server: {grpc: {port: 70000}}",
            "servable.yaml:4: server.grpc.port: should be less than or equal to 65535, not 70000",
            id="port-out-of-range",
        ),
        pytest.param(
            MODEL + "server: {http: {port: 8001}}",
            "servable.yaml:4: server.http.port: server.grpc.port is 8001 too; give each a port of its own",
            id="one-port-for-both",
        ),
        pytest.param(
            MODEL + "server: {grpc: {port: 8002}}",
            "servable.yaml:4: server.http.port: server.grpc.port is 8002 too; give each a port of its own",
            id="port-of-the-other-by-default",
        ),
        pytest.param(
            MODEL + "  engine: cuda",
            "servable.yaml:4: models[0].engine: should be one of auto, openvino, sparse, tensorrt, "
            'tensorrt-rtx, native, not "cuda"',
            id="no-such-engine",
        ),
        pytest.param(
            MODEL + "  tensorrt: {targets: [sm86, sm90]}",
            "servable.yaml:4: models[0].tensorrt.targets[1]: should be one of sm75, sm80, sm86, sm89, sm120, sm121 "
            '(sm90, H100, H200, is none of RTX: engine tensorrt builds for it, on a machine that has one), not "sm90"',
            id="no-such-target",
        ),
        pytest.param(
            MODEL + "  tensorrt: {targets: sm86}",
            'servable.yaml:4: models[0].tensorrt.targets: should be a list, not "sm86"',
            id="target-without-a-list",
        ),
        pytest.param(
            MODEL + "  tensorrt: {targets: [86]}",
            "servable.yaml:4: models[0].tensorrt.targets[0]: should be one of sm75, sm80, sm86, sm89, sm120, "
            "sm121, not 86",
            id="target-that-is-a-number",
        ),
        pytest.param(
            MODEL + "  versions: 5",
            "servable.yaml:4: models[0].versions: should be a mapping, or should be 'all', or should be a list, not 5",
            id="no-form-of-a-choice-fits",
        ),
        pytest.param(
            MODEL + "  partition: {native_ops: Relu}",
            'servable.yaml:4: models[0].partition.native_ops: should be a list, not "Relu"',
            id="text-is-no-list",
        ),
        pytest.param(
            MODEL + "  partition: {native_ops: [Relu, 1]}",
            "servable.yaml:4: models[0].partition.native_ops[1]: should be a valid string, not 1",
            id="item-of-a-list",
        ),
        pytest.param(MODEL + "server: 3", "servable.yaml:4: server: should be a mapping, not 3", id="no-section"),
        pytest.param("models: [3]", "servable.yaml:1: models[0]: should be a mapping, not 3", id="no-model"),
        pytest.param("models: null", "servable.yaml:1: models: should be a list, not null", id="null-models"),
        pytest.param(
            "models: []", "servable.yaml:1: models: names no model; give at least one name and path", id="no-models"
        ),
        pytest.param(
            "server: {}",
            "servable.yaml:1: models: is missing; add it, or serve MODEL or --model-repository beside this file",
            id="models-missing",
        ),
        pytest.param(
            "models:\n- path: m.onnx", "servable.yaml:2: models[0].name: is missing; add it", id="name-missing"
        ),
        pytest.param(
            "models:\n- {name: ../a, path: m.onnx}",
            "servable.yaml:2: models[0].name: should be letters, digits, '.', '_' and '-', without '..', and not start "
            "with '.' or '-', not \"../a\"",
            id="name-that-leaves-the-folder",
        ),
        pytest.param(
            MODEL + "- name: a\n  path: m.onnx",
            "servable.yaml:4: models[1].name: models[0] is called 'a' too; rename one",
            id="duplicate-model-name",
        ),
        pytest.param(
            "models:\n- name: a\n  path: gone.onnx",
            "servable.yaml:3: models[0].path: there is no file gone.onnx; correct the path",
            id="missing-model-file",
        ),
        pytest.param(MODEL + "cache: {dir: ''}", 'servable.yaml:4: cache.dir: should be a path, not ""', id="no-path"),
    ],
)
def test_faults_name_file_line_and_field(
    write: Callable[[str | bytes], pathlib.Path], text: str, expected: str
) -> None:
    path = write(text)

    assert faults(path) == expected


def test_every_fault_of_a_stage_is_told(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write("models:\n- name: a\n  path: gone.onnx\n- name: a\n  path: away.onnx\n")

    assert faults(path).splitlines() == [
        "servable.yaml:3: models[0].path: there is no file gone.onnx; correct the path",
        "servable.yaml:4: models[1].name: models[0] is called 'a' too; rename one",
        "servable.yaml:5: models[1].path: there is no file away.onnx; correct the path",
    ]


def test_variables_take_the_type_of_their_key(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write(
        "server:\n  grpc: {port: '${PORT}', host: \"${HOST:-localhost}\"}\n  shutdown_grace_s: ${GRACE:-1.5}\n"
        "models:\n- {name: '${NAME}', path: m.onnx, required: '${NEEDED}', threads: '${THREADS:-null}'}\n"
    )

    config = load_config(path, {"PORT": "9001", "NAME": "8", "NEEDED": "false"})

    assert (config.server.grpc.port, config.server.grpc.host) == (9001, "localhost")
    assert config.server.shutdown_grace_s == 1.5
    model = config.models[0]
    assert (model.name, model.required, model.threads) == ("8", False, None)


def test_a_variable_of_the_wrong_type_is_told_by_field(write: Callable[[str | bytes], pathlib.Path]) -> None:
    path = write(MODEL + "server: {grpc: {port: '${PORT}'}}")

    assert faults(path, {"PORT": "many"}) == (
        'servable.yaml:4: server.grpc.port: should be a valid integer, not "many"'
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("", "is empty; it needs at least models: with a name and a path", id="empty"),
        pytest.param("# nothing\n", "is empty; it needs at least models: with a name and a path", id="only-a-comment"),
        pytest.param("- 1", "is not a mapping; it needs at least models: with a name and a path", id="a-list"),
        pytest.param(b"a: \xff", "not UTF-8; save the file as UTF-8", id="not-utf-8"),
        pytest.param(b"a" * (2 << 20), "larger than 1048576 bytes; this is no servable.yaml", id="huge"),
    ],
)
def test_a_file_that_is_no_configuration_is_told_as_such(
    write: Callable[[str | bytes], pathlib.Path], content: bytes | str, expected: str
) -> None:
    path = write(content)

    assert faults(path).endswith(f": {expected}")


def test_a_key_that_is_gone_is_logged_and_has_no_effect(
    write: Callable[[str | bytes], pathlib.Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = write(
        MODEL + "  tune: true\nserver: {grpc: {port: 1, direct: false}}\ncache: {shared: /mnt, shared_key: null}"
    )

    config = load_config(path)

    assert (config.server.grpc.port, config.models[0].options) == (1, CompileOptions())
    assert config.server.startup is None
    assert "servable.yaml:5: server.grpc.direct has no effect" in caplog.text
    assert "servable.yaml:6: cache.shared has no effect: compile once with `trtnode compile`" in caplog.text
    assert "servable.yaml:6: cache.shared_key has no effect" in caplog.text
    assert "servable.yaml:4: models[0].tune has no effect: engines are measured by default" in caplog.text


GONE_KEYS = """
  approximate: false
  step_down: false
  optimize: {tanh: true}
  batching: {adaptive: false, latency_target_ms: null}
  preprocess: [{tiles: {size: [32, 32], low_texture: null}}]
  tensorrt: {strip_plan: false, build_timeout_s: 1800}
"""


def test_every_key_that_full_yaml_once_had_is_read_and_logged_with_what_to_do_instead(
    write: Callable[[str | bytes], pathlib.Path], caplog: pytest.LogCaptureFixture
) -> None:
    load_config(write(MODEL + GONE_KEYS))

    told = re.findall(r"models\[0\]\.(\S+) has no effect: (\w+)", caplog.text)
    assert dict(told) == {
        "approximate": "no",
        "step_down": "a",
        "optimize": "name",
        "batching.adaptive": "set",
        "batching.latency_target_ms": "variants",
        "preprocess[0].tiles.low_texture": "every",
        "tensorrt.strip_plan": "engines",
        "tensorrt.build_timeout_s": "set",
    }


def test_a_missing_file_is_told(tmp_path: pathlib.Path) -> None:
    assert faults(tmp_path / "none.yaml") == ("none.yaml: can't be read (No such file or directory); check the path")


def test_a_folder_in_place_of_the_file_is_told(tmp_path: pathlib.Path) -> None:
    assert re.search(r": can't be read \(Is a directory\); check the path$", faults(tmp_path))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("max_batch_size: 0", "max_batch_size: should be greater than or equal to 1, not 0"),
        ("max_queue_delay_us: -1", "max_queue_delay_us: should be greater than or equal to 0, not -1"),
        ("max_queue_size: 0", "max_queue_size: should be greater than or equal to 1, not 0"),
        ("timeout_ms: 0", "timeout_ms: should be greater than or equal to 1, not 0"),
        ("priority_levels: 0", "priority_levels: should be greater than or equal to 1, not 0"),
        ("preferred_batch_sizes: [0]", "preferred_batch_sizes[0]: should be greater than or equal to 1, not 0"),
        (
            "max_batch_tokens: 64",
            "max_batch_tokens: has no effect without lengths; add `lengths: auto` to the model, or leave it out",
        ),
        ("preferred_batch_sizes: 4", "preferred_batch_sizes: should be a list, not 4"),
        (
            "preferred_batch_sizes: [4, 32]",
            "preferred_batch_sizes: 32 is more than max_batch_size (16); leave it out or raise that",
        ),
        ("max_delay: 5", "max_delay: unknown key; did you mean 'max_queue_delay_us'?"),
    ],
)
def test_a_fault_in_the_batching_of_a_model_is_told(
    write: Callable[[str | bytes], pathlib.Path], setting: str, expected: str
) -> None:
    path = write(MODEL + f"  batching:\n    {setting}")

    assert faults(path) == f"servable.yaml:5: models[0].batching.{expected}"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("some", "lengths: should be 'auto'"),
        ("{buckets: [8]}", "lengths.axes: is missing"),
        ("{axes: {ids: 1}}", "lengths.buckets: is missing"),
        ("{axes: {}, buckets: [8]}", "lengths.axes: "),
        ("{axes: {ids: 0}, buckets: [8]}", "lengths.axes.ids: should be greater than or equal to 1, not 0"),
        ("{axes: {ids: 1}, buckets: []}", "lengths.buckets: "),
        ("{axes: {ids: 1}, buckets: [0]}", "lengths.buckets[0]: should be greater than or equal to 1, not 0"),
        ("{axes: {ids: 1}, buckets: [8, 4]}", "lengths.buckets: should ascend; put them in order"),
        ("{axes: {ids: 1}, buckets: [8], mask: m}", "lengths.mask: 'm' is none of the inputs in axes; add it there"),
        ("{axes: {ids: 1}, buckets: [8], pad: {x: 1}}", "lengths.pad: 'x' is none of the inputs in axes"),
        ("{axes: {m: 1}, buckets: [8], mask: m, pad: {m: 1}}", "lengths.pad: 'm' is the mask"),
        ("{axes: {ids: 1}, buckets: [8], pad: {ids: a}}", 'lengths.pad.ids: should be a valid number, not "a"'),
        ("{axis: {ids: 1}, buckets: [8]}", "lengths.axis: unknown key; did you mean 'axes'?"),
    ],
)
def test_a_fault_in_the_lengths_of_a_model_is_told(
    write: Callable[[str | bytes], pathlib.Path], setting: str, expected: str
) -> None:
    told = faults(write(MODEL + f"  lengths: {setting}"))

    assert f"models[0].{expected}" in told


def test_schema_covers_the_whole_tree() -> None:
    schema = config_schema()

    assert schema["title"] == "servable.yaml"
    assert list(schema["properties"]) == ["server", "cache", "trust", "models"]
    model = schema["$defs"]["ModelConfig"]
    assert model["required"] == ["name"]
    assert model["anyOf"] == [{"required": [key]} for key in ("path", "variants", "ensemble")]
    assert all("description" in setting or "$ref" in setting for setting in model["properties"].values())


def test_schema_holds_no_path_of_this_machine() -> None:
    assert str(pathlib.Path.home()) not in json.dumps(config_schema())


@pytest.mark.parametrize("name", ["digits.yaml", "full.yaml", "images.yaml", "secure.yaml"])
def test_example_configurations_are_valid(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = pathlib.Path(__file__).parents[3]
    text = (root / "configs" / name).read_text().replace("../examples/digits/", "")
    for file in ("digits.onnx", "server.pem", "server.key", "tokens.yaml"):
        (tmp_path / file).touch()
    shutil.copy(root / "examples" / "digits" / "labels.txt", tmp_path)
    (tmp_path / name).write_text(text)

    config = load_config(tmp_path / name, {})

    assert [model.name for model in config.models] == ["digits"]


def test_the_configuration_of_make_serve_names_files_that_are_there() -> None:
    config = load_config(pathlib.Path(__file__).parents[3] / "configs" / "scans.yaml", {})

    assert [(model.name, model.options.precision) for model in config.models] == [("scans", "int8")]
