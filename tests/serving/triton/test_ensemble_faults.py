"""Ensembles that can't be served: each is refused with the line of its configuration, and what to do."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from ensembles import DENSE, ENSEMBLES, PORTS, configured, read, write_ensemble, write_model, written
from trtnode.serving.errors import ConfigError

THREE = ENSEMBLES["three"]
Change = Callable[[pathlib.Path], object]
"""Changes a repository that is served otherwise."""


def ensemble(text: str) -> Change:
    return lambda repository: write_ensemble(repository / "three", text)


def member(name: str, config: str) -> Change:
    return lambda repository: (repository / name / "config.pbtxt").write_text(config)


def steps(*changed: tuple[str, dict[str, str], dict[str, str]], ports: str = PORTS) -> Change:
    return ensemble(configured(list(changed), ports=ports))


def damage(repository: pathlib.Path) -> None:
    (repository / "dense" / "1" / "model.onnx").write_bytes(b"no model")


def wider(repository: pathlib.Path) -> None:
    write_model(
        repository / "dense",
        DENSE.replace("[N, 4] x", "[N, 5] x").replace("[4, 4] w", "[5, 4] w").replace("6, 7}", "6, 7, 1, 1, 1, 1}"),
        18,
    )


def circular(repository: pathlib.Path) -> None:
    outer = [("three", {"image": "image"}, {"answer": "answer"})]
    write_ensemble(repository / "outer", configured(outer))
    write_ensemble(repository / "three", configured([("outer", {"image": "image"}, {"answer": "answer"})]))


SCALED, DENSE_STEP, LAST = THREE
REFUSED: dict[str, tuple[Change, str]] = {
    "missing member": (
        steps(SCALED, ("dens", *DENSE_STEP[1:]), LAST),
        "three/config.pbtxt:10: ensemble_scheduling.step[1].model_name: there is no model 'dens' here; add it, or",
    ),
    "missing version": (
        ensemble(configured(THREE).replace('"dense" model_version: -1', '"dense" model_version: 7')),
        ":10: ensemble_scheduling.step[1].model_version: 'dense' has no such version to serve; it has 1",
    ),
    "damaged member": (damage, ":10: ensemble_scheduling.step[1].model_name: 'dense' can't be used: "),
    "python member": (
        member("scale", 'backend: "python"'),
        ":7: ensemble_scheduling.step[0].model_name: 'scale' can't be a step (",
    ),
    "member with a state": (
        member("softmax", "max_batch_size: 2\nsequence_batching { }"),
        "'softmax' is more than a graph: variants, state, tiles, a decoder, texts; name one without them",
    ),
    "steps that wait for each other": (
        steps(SCALED, ("dense", {"x": "b"}, {"y": "a"}), ("dense", {"x": "a"}, {"y": "b"}), LAST),
        "three/config.pbtxt:10: ensemble_scheduling.step[1]: steps wait for each other (dense > dense > dense); take",
    ),
    "ensembles that contain each other": (
        circular,
        ":7: ensemble_scheduling.step[0].model_name: 'three' is, or contains, an ensemble that contains itself; take",
    ),
    "tensor given twice": (
        steps(SCALED, DENSE_STEP, ("dense", {"x": "pixels"}, {"y": "logits"}), LAST),
        ":15: ensemble_scheduling.step[2].output_map['y']: 'logits' is a tensor that 'dense' gives, too; give it",
    ),
    "tensor of requests given": (
        steps(SCALED, ("dense", {"x": "pixels"}, {"y": "image"}), LAST),
        ":12: ensemble_scheduling.step[1].output_map['y']: 'image' is a tensor that requests bring, too",
    ),
    "tensor that nothing gives": (
        steps(SCALED, ("dense", {"x": "pixel"}, DENSE_STEP[2]), LAST),
        ":11: ensemble_scheduling.step[1].input_map['x']: there is no tensor 'pixel': no step gives it, and requests "
        "bring 'image'",
    ),
    "input that the model lacks": (
        steps(SCALED, ("dense", {"z": "pixels"}, DENSE_STEP[2]), LAST),
        ":11: ensemble_scheduling.step[1].input_map['z']: 'dense' has no input 'z'; it has 'x'",
    ),
    "output that the model lacks": (
        steps(SCALED, ("dense", {"x": "pixels"}, {"z": "logits"}), LAST),
        ":12: ensemble_scheduling.step[1].output_map['z']: 'dense' has no output 'z'; it has 'y', 'other'",
    ),
    "input without a tensor": (
        steps(SCALED, ("join", {"a": "pixels"}, {"sum": "logits"}), LAST),
        ":11: ensemble_scheduling.step[1].input_map: no tensor is named for the input 'b' of 'join'; add it",
    ),
    "output that no step gives": (
        steps(SCALED, DENSE_STEP, ("softmax", {"logits": "logits"}, {"scores": "scores"})),
        ":4: output[0]: no step gives it; there are 'image', 'pixels', 'logits', 'scores'",
    ),
    "shape between steps": (
        wider,
        ":11: ensemble_scheduling.step[1].input_map['x']: takes float32[dense/N, 5], and 'pixels' is float32[",
    ),
    "version of a model": (
        ensemble(configured(THREE).replace("model_version: -1", "model_version: -2")),
        ": ensemble_scheduling: should be greater than or equal to -1",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_an_ensemble_that_cannot_be_is_refused_with_its_line(fault: str, tmp_path: pathlib.Path) -> None:
    change, sentence = REFUSED[fault]
    change(written(tmp_path, "three"))

    with pytest.raises(ConfigError) as refused:
        read(tmp_path)

    assert sentence in str(refused.value)


def test_a_member_that_is_refused_is_named_once_with_its_own_line(tmp_path: pathlib.Path) -> None:
    member("scale", '\nbackend: "dali"')(written(tmp_path, "three"))

    with pytest.raises(ConfigError) as refused:
        read(tmp_path)

    assert str(refused.value).startswith(f"{tmp_path}/three/config.pbtxt:7: ")
    assert f"({tmp_path}/scale/config.pbtxt:2: backend: is 'dali', and this server runs ONNX" in str(refused.value)
