"""Keys of signers, and signatures of compiled models."""

from __future__ import annotations

import pathlib
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edited_models import (
    attribute,
    edited,
    with_engine_cut_short,
    with_field,
    with_weight_changed,
)
from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.keys import generate_key, read_public_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import KeyFileError, OutputFileError, SigningError
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.compiled.trtnode import embedded_engine, is_trtnode
from trtnode.partitioner.errors import CompiledModelError

OLD_FILES = pathlib.Path(__file__).parents[2] / "fixtures" / "0.1.0"


def test_engines_in_subgraphs_are_signed_too(key: pathlib.Path, trust: Trust, tmp_path: pathlib.Path) -> None:
    compiled = OLD_FILES / "engines_in_a_branch.onnx"

    count = sign_model(compiled, tmp_path / "signed.onnx", key)

    nodes = ir.traversal.RecursiveGraphIterator(ir.load(tmp_path / "signed.onnx").graph)
    envelopes = [Envelope.from_json(embedded_engine(op).envelope, "s") for op in nodes if is_trtnode(op)]
    assert len(envelopes) == count
    for envelope in envelopes:
        trust.check(envelope, "s")


def test_a_key_pair_is_readable_by_its_owner_and_never_overwritten(key: pathlib.Path, tmp_path: pathlib.Path) -> None:
    private, public = key.read_bytes(), key.with_name("signer.pub").read_bytes()

    with pytest.raises(KeyFileError, match=r"signer.pub: is there already, and keys are never overwritten"):
        generate_key(key)
    key.with_name("signer.pub").unlink()
    with pytest.raises(KeyFileError, match=r"signer: is there already, and keys are never overwritten"):
        generate_key(key)

    with pytest.raises(KeyFileError, match=r"gone/signer: can't be written \(No such file"):
        generate_key(tmp_path / "gone" / "signer")

    assert key.read_bytes() == private
    assert key.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in public


def other_kind(path: pathlib.Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))


def with_password(path: pathlib.Path) -> None:
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"password")
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, *form))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(pathlib.Path.unlink, r"signer: can't be read \(No such file", id="missing"),
        pytest.param(lambda path: path.write_bytes(b""), "is no Ed25519 private key", id="empty"),
        pytest.param(lambda path: path.write_bytes(bytes(99)), "is no Ed25519 private key", id="no-pem"),
        pytest.param(
            lambda path: path.write_bytes(path.with_name("signer.pub").read_bytes()), "no Ed25519", id="public"
        ),
        pytest.param(other_kind, "is no Ed25519 private key", id="of-another-kind"),
        pytest.param(with_password, "without a password", id="with-a-password"),
        pytest.param(lambda path: path.chmod(0o644), "others can read or change; run `chmod 600`", id="open-to-others"),
    ],
)
def test_file_that_is_no_private_key_signs_nothing(
    spoil: Any, message: str, key: pathlib.Path, unsigned: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    spoil(key)

    with pytest.raises(KeyFileError, match=message):
        sign_model(unsigned, tmp_path / "signed.onnx", key)

    assert not (tmp_path / "signed.onnx").exists()


def test_model_is_not_signed_into_a_loop_of_links(
    unsigned: pathlib.Path, key: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(OutputFileError, match=r"signed.onnx: can't be written"):
        sign_model(unsigned, tmp_path / "loop" / "signed.onnx", key)


def test_private_key_is_no_public_one(key: pathlib.Path) -> None:
    with pytest.raises(KeyFileError, match=r"signer: is no Ed25519 public key; give the .pub file"):
        read_public_key(key)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        pytest.param(with_engine_cut_short, SigningError, "the engine of segment_0 is damaged", id="engine-cut-short"),
        pytest.param(with_weight_changed, SigningError, "weights of segment_0 were changed", id="weight-changed"),
        pytest.param(with_field(format_version=9), SigningError, "format 9, this program reads 2", id="newer"),
        pytest.param(lambda p: p.graph.node[0].ClearField("attribute"), CompiledModelError, "no envelope", id="bare"),
    ],
)
def test_what_is_not_whole_is_not_signed(
    change: Any, kind: type[Exception], message: str, unsigned: pathlib.Path, key: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(unsigned.read_bytes())

    with pytest.raises(kind, match=message):
        sign_model(edited(copy, change), tmp_path / "signed.onnx", key)

    assert not (tmp_path / "signed.onnx").exists()


def test_model_without_engines_has_nothing_to_sign(source: pathlib.Path, key: pathlib.Path) -> None:
    with pytest.raises(SigningError, match="no node of it has an engine, so there is nothing to sign"):
        sign_model(source, source, key)


def test_model_with_files_beside_it_is_signed_in_its_folder(
    unsigned: pathlib.Path, key: pathlib.Path, trust: Trust, tmp_path: pathlib.Path
) -> None:
    def move_engine_out(proto: onnx.ModelProto) -> None:
        engine = attribute(proto.graph.node[0], "engine")
        (tmp_path / "beside.engine").write_bytes(engine.t.raw_data)
        engine.CopyFrom(onnx.helper.make_attribute("engine_file", "beside.engine"))

    copy = tmp_path / "copy.onnx"
    copy.write_bytes(unsigned.read_bytes())
    split = edited(copy, move_engine_out)
    (tmp_path / "elsewhere").mkdir()

    with pytest.raises(SigningError, match="files beside the model hold a part of it"):
        sign_model(split, tmp_path / "elsewhere" / "signed.onnx", key)
    sign_model(split, split, key)

    assert open_model(split, run=RunOptions(trust=trust)).facts.segments == 2
