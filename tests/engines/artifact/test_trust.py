"""An engine runs only if somebody who is trusted vouches for it; whatever else happens, the model answers."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest

from comparison import AssertSame, RunPlainly
from edited_models import (
    edited,
    with_engine_bit_flipped,
    with_engine_cut_short,
    with_engines_exchanged,
    with_field,
    with_function_edited,
    with_weight_changed,
)
from envelopes import PLAN
from trtnode.engines.artifact.envelope import Device
from trtnode.engines.artifact.keys import generate_key, read_private_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust, sign
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineRejectedError
from trtnode.engines.runtime.options import RunOptions

FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}


def test_model_that_a_trusted_key_signed_runs_in_its_engines(
    signed: pathlib.Path, trust: Trust, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    executable = open_model(signed, run=RunOptions(trust=trust))

    assert executable.facts.rejected == ()
    assert executable.facts.segments == 2
    same(executable.run(FEEDS), plain(source, FEEDS))
    same(plain(signed, FEEDS), plain(source, FEEDS))


def test_openvino_needs_no_signature_where_there_are_no_keys(unsigned: pathlib.Path) -> None:
    assert open_model(unsigned).facts.segments == 2


def test_openvino_needs_one_where_there_are_keys(
    unsigned: pathlib.Path, trust: Trust, caplog: pytest.LogCaptureFixture
) -> None:
    executable = open_model(unsigned, run=RunOptions(trust=trust))

    assert executable.facts.segments == 0
    assert "segment_0 can't be used: it has no signature, and engines of openvino need one" in caplog.text


def test_a_backend_that_may_be_unsigned_may_be_so_beside_keys(unsigned: pathlib.Path, key: pathlib.Path) -> None:
    trust = Trust.of([key.with_name("signer.pub")], ["openvino"])

    assert open_model(unsigned, run=RunOptions(trust=trust)).facts.segments == 2


@pytest.mark.parametrize(
    ("change", "rejected", "message"),
    [
        pytest.param(with_field(signature=None), 1, "it has no signature", id="unsigned"),
        pytest.param(with_field(signature=""), 1, "its signature is not of a trusted key", id="empty"),
        pytest.param(with_field(signature="ed25519:é"), 1, "is not of a trusted key", id="no-base64"),
        pytest.param(with_field(signature="ed25519:AAAA"), 1, "is not of a trusted key", id="too-short"),
        pytest.param(with_field(signature="machine:" + "0" * 64), 1, "is not of a trusted key", id="another-machine"),
        pytest.param(with_field(signature="\ud800"), 1, "is not of a trusted key", id="no-text"),
        pytest.param(with_field(signature=5), 1, "can't be read", id="no-text-at-all"),
        pytest.param(with_field(precision_asked="fp16"), 1, "or what it covers was changed", id="field-changed"),
        pytest.param(with_field(builder_version="\udcff"), 1, "or what it covers was changed", id="field-is-no-utf8"),
        pytest.param(with_field(engine_sha256="f" * 64), 1, "damaged", id="hash-changed"),
        pytest.param(with_engine_cut_short, 1, "damaged", id="engine-cut-short"),
        pytest.param(with_engine_bit_flipped, 1, "damaged", id="engine-tampered"),
        pytest.param(with_engines_exchanged, 2, "the nodes or weights that it replaces", id="engines-exchanged"),
        pytest.param(with_weight_changed, 1, "the nodes or weights that it replaces", id="weight-changed"),
        pytest.param(with_function_edited, 1, "the nodes or weights that it replaces", id="function-edited"),
    ],
)
def test_signed_model_that_was_edited_answers_natively(
    change: Any,
    rejected: int,
    message: str,
    signed: pathlib.Path,
    trust: Trust,
    plain: RunPlainly,
    same: AssertSame,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = edited(signed, change)

    executable = open_model(path, run=RunOptions(trust=trust))

    assert len(executable.facts.rejected) == rejected
    assert message in executable.facts.rejected[0]
    assert message in caplog.text
    same(executable.run(FEEDS), plain(path, FEEDS))


def test_model_that_another_key_signed_answers_natively(
    unsigned: pathlib.Path, trust: Trust, tmp_path: pathlib.Path
) -> None:
    generate_key(tmp_path / "stranger")
    sign_model(unsigned, tmp_path / "forged.onnx", tmp_path / "stranger")

    executable = open_model(tmp_path / "forged.onnx", run=RunOptions(trust=trust))

    assert executable.facts.segments == 0
    assert "its signature is not of a trusted key" in executable.facts.rejected[0]


@pytest.mark.parametrize("allowed", [None, ["openvino"]])
def test_tensorrt_needs_a_signature_by_default(allowed: list[str] | None) -> None:
    with pytest.raises(EngineRejectedError, match="s can't be used: it has no signature, and engines of tensorrt need"):
        Trust.of([], allowed).check(PLAN, "s")


def test_tensorrt_needs_none_where_the_user_says_so() -> None:
    Trust.of([], ["tensorrt"]).check(PLAN, "s")


def test_tensorrt_plan_that_a_trusted_key_signed_is_accepted(key: pathlib.Path, trust: Trust) -> None:
    plan = sign(PLAN, read_private_key(key))

    trust.check(plan, "s")

    with pytest.raises(EngineRejectedError, match="its signature is not of this machine, and no key is trusted"):
        Trust().check(plan, "s")


@pytest.mark.parametrize(
    ("change", "here", "message"),
    [
        pytest.param({"backend_version": "10.13.3.9"}, {}, "tensorrt version '10.13.3.9'", id="another-major"),
        pytest.param({"backend_version": "11.1.0.1"}, {}, "tensorrt version '11.1.0.1'", id="another-minor"),
        pytest.param(
            {}, {"device": Device(features="9.0", name="H200")}, "processor '8.9'; here it is '9.0'", id="gpu"
        ),
    ],
)
def test_plan_for_another_release_or_gpu_is_refused_whoever_signed_it(
    change: dict[str, Any], here: dict[str, Any], message: str
) -> None:
    plan = dataclasses.replace(PLAN, engine_sha256=sha256_of_nothing(), **change)

    with pytest.raises(EngineRejectedError, match=message):
        plan.verify(b"", "s", **{"version": "11.4.0.106", "device": PLAN.device, **here})


def sha256_of_nothing() -> str:
    return "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
