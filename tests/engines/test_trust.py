"""An engine runs only if somebody who is trusted vouches for it; whatever else happens, the model answers."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from engines import EngineCache, Trust, load_executable
from engines.envelope import Device, Envelope, current_platform
from engines.errors import EngineRejectedError, KeyFileError, SigningError
from engines.keys import MachineKey, generate_key, read_private_key, read_public_key
from engines.signing import sign_model
from engines.trust import sign
from partitioner import CompiledModelError

GRAPH = """g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}>
{ e = Exp(x) m = Mul(e, w) r = Relu(m) y = Neg(r) }"""
BRANCHES = """g (bool c, float[4,4] s, float[256,1024] x, float[1024] k) => (float[256,1024] y) {
    [branch] y = If (c) <
        then_branch = t () => (float[256,1024] a) {
            p = Mul(x, k) q = Exp(p) r = Tanh(q) d = Det(s) u = Add(r, d) v = Sigmoid(u) a = Neg(v) },
        else_branch = e () => (float[256,1024] b) { b = Neg(x) }
    >
}"""
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}

PLAN = Envelope(
    backend="tensorrt",
    backend_version="11.4.0.106",
    platform=current_platform(),
    device=Device(features="8.9", name="a GPU"),
    precision_asked="fp32",
    precision_effective="fp32",
    options={"STRONGLY_TYPED": "1"},
    inputs=(),
    outputs=(),
    engine_sha256="0" * 64,
    segment_sha256="0" * 64,
    builder_version="0.1.0",
)


@pytest.fixture
def key(tmp_path: pathlib.Path) -> pathlib.Path:
    """A private key; the public one is beside it."""
    generate_key(tmp_path / "signer")
    return tmp_path / "signer"


@pytest.fixture
def trust(key: pathlib.Path) -> Trust:
    return Trust.of([key.with_name("signer.pub")], None)


@pytest.fixture(scope="module")
def source(shared_workshop: Any) -> pathlib.Path:
    return shared_workshop.write(GRAPH)


@pytest.fixture(scope="module")
def unsigned(source: pathlib.Path, shared_workshop: Any) -> pathlib.Path:
    """Two engines around a native node."""
    return shared_workshop.compile_file(source, native_ops=("Relu",))


@pytest.fixture
def signed(unsigned: pathlib.Path, key: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "signed.onnx"
    sign_model(unsigned, path, key)
    return path


def attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(a for a in node.attribute if a.name == name)


def edited(path: pathlib.Path, change: Callable[[onnx.ModelProto], None]) -> pathlib.Path:
    proto = onnx.load(path)
    change(proto)
    target = path.with_name("edited.onnx")
    onnx.save(proto, target)
    return target


def with_field(**fields: Any) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        envelope = attribute(proto.graph.node[0], "envelope")
        envelope.s = json.dumps(json.loads(envelope.s) | fields).encode()

    return change


def with_engine_cut_short(proto: onnx.ModelProto) -> None:
    tensor = attribute(proto.graph.node[0], "engine").t
    tensor.raw_data = tensor.raw_data[:-1]
    tensor.dims[:] = [len(tensor.raw_data)]


def with_engine_bit_flipped(proto: onnx.ModelProto) -> None:
    tensor = attribute(proto.graph.node[0], "engine").t
    tensor.raw_data = bytes([tensor.raw_data[0] ^ 1]) + tensor.raw_data[1:]


def with_engines_exchanged(proto: onnx.ModelProto) -> None:
    nodes = [node for node in proto.graph.node if node.op_type == "TrtNode"]
    one, other = ([attribute(node, name) for name in ("engine", "envelope")] for node in nodes)
    for first, second in zip(one, other, strict=True):
        kept = onnx.AttributeProto.FromString(first.SerializeToString())
        first.CopyFrom(second)
        second.CopyFrom(kept)


def with_weight_changed(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full(4, 9, np.float32), "w"))


def with_function_edited(proto: onnx.ModelProto) -> None:
    proto.functions[0].node[0].op_type = "Sin"


def test_model_that_a_trusted_key_signed_runs_in_its_engines(
    signed: pathlib.Path, trust: Trust, source: pathlib.Path, plain: Any, same: Any
) -> None:
    executable = load_executable(signed, trust=trust)

    assert executable.description["rejected"] == []
    assert executable.description["segments"] == 2
    same(executable.run(FEEDS), plain(source, FEEDS))
    same(plain(signed, FEEDS), plain(source, FEEDS))


def test_openvino_needs_no_signature_where_there_are_no_keys(unsigned: pathlib.Path) -> None:
    assert load_executable(unsigned).description["segments"] == 2


def test_openvino_needs_one_where_there_are_keys(unsigned: pathlib.Path, trust: Trust, caplog: Any) -> None:
    executable = load_executable(unsigned, trust=trust)

    assert executable.description["segments"] == 0
    assert "segment_0 can't be used: it has no signature, and engines of openvino need one" in caplog.text


def test_a_backend_that_may_be_unsigned_may_be_so_beside_keys(unsigned: pathlib.Path, key: pathlib.Path) -> None:
    trust = Trust.of([key.with_name("signer.pub")], ["openvino"])

    assert load_executable(unsigned, trust=trust).description["segments"] == 2


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
    change: Any, rejected: int, message: str, signed: pathlib.Path, trust: Trust, plain: Any, same: Any, caplog: Any
) -> None:
    path = edited(signed, change)

    executable = load_executable(path, trust=trust)

    assert len(executable.description["rejected"]) == rejected
    assert message in executable.description["rejected"][0]
    assert message in caplog.text
    same(executable.run(FEEDS), plain(path, FEEDS))


def test_model_that_another_key_signed_answers_natively(
    unsigned: pathlib.Path, trust: Trust, tmp_path: pathlib.Path
) -> None:
    generate_key(tmp_path / "stranger")
    sign_model(unsigned, tmp_path / "forged.onnx", tmp_path / "stranger")

    executable = load_executable(tmp_path / "forged.onnx", trust=trust)

    assert executable.description["segments"] == 0
    assert "its signature is not of a trusted key" in executable.description["rejected"][0]


def test_engines_in_bodies_are_signed_and_compared_too(
    shared_workshop: Any, key: pathlib.Path, trust: Trust, tmp_path: pathlib.Path
) -> None:
    compiled = shared_workshop.compile_file(shared_workshop.write(BRANCHES))
    count = sign_model(compiled, tmp_path / "signed.onnx", key)
    unlike = onnx.load(tmp_path / "signed.onnx")
    unlike.functions[0].node[0].op_type = "Sub"
    onnx.save(unlike, tmp_path / "edited.onnx")

    executable = load_executable(tmp_path / "signed.onnx", trust=trust)
    edited = load_executable(tmp_path / "edited.onnx", trust=trust)

    assert (count, executable.description["segments"], executable.description["rejected"]) == (1, 1, [])
    assert "nodes or weights that it replaces were changed" in edited.description["rejected"][0]


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


def test_plan_that_this_machine_built_is_accepted_here_and_nowhere_else(tmp_path: pathlib.Path) -> None:
    here, there = (Trust().on_machine(tmp_path / name) for name in ("here", "there"))
    there.mark(PLAN)

    plan = here.mark(PLAN)

    here.check(plan, "s")
    with pytest.raises(EngineRejectedError, match="not of this machine"):
        there.check(plan, "s")
    with pytest.raises(EngineRejectedError, match="not of this machine"):
        here.check(dataclasses.replace(plan, precision_effective="fp16"), "s")


def test_key_of_the_machine_is_made_once_by_however_many_and_for_its_owner_alone(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "new" / "machine.key"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        marks = list(pool.map(lambda _: MachineKey(file).mark(b"data"), range(16)))

    assert len(set(marks)) == 1
    assert MachineKey(file).accepts(b"data", marks[0] or "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["machine.key"]


def open_to_others(file: pathlib.Path) -> None:
    file.chmod(0o640)


def cut_short(file: pathlib.Path) -> None:
    file.write_bytes(file.read_bytes()[:16])


def replaced(file: pathlib.Path) -> None:
    file.write_bytes(bytes(32))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(pathlib.Path.unlink, "can't be read", id="lost"),
        pytest.param(open_to_others, "others can read or change it", id="open-to-others"),
        pytest.param(cut_short, "should have 32 bytes, not 16", id="cut-short"),
        pytest.param(replaced, "", id="another"),
    ],
)
def test_cached_engines_are_built_again_where_the_key_of_the_machine_is_of_no_use(
    spoil: Any, message: str, workshop: Any, source: pathlib.Path, in_process: Any, tmp_path: pathlib.Path, caplog: Any
) -> None:
    """As TensorRT's plans are treated: none runs without a signature."""
    cache = EngineCache(tmp_path / "cache", 2**30, trust=Trust(allow_unsigned=frozenset()))
    options = {"engine": "reference", "native_ops": ("Relu",), "cache": cache, "worker": in_process}
    workshop.compile(source, **options)
    found = workshop.compile(source, **options)
    spoil(tmp_path / "cache" / "machine.key")

    compiled = workshop.compile(source, **options)

    assert (found.engines_built, found.engines_cached) == (0, 2)
    assert (compiled.engines_built, compiled.engines_cached) == (2, 0)
    assert message in caplog.text
    assert "Ignoring a cache entry, so its engine is built again" in caplog.text


def test_cached_engine_that_was_exchanged_by_another_is_built_again(
    workshop: Any, source: pathlib.Path, in_process: Any, tmp_path: pathlib.Path
) -> None:
    options = {"engine": "reference", "native_ops": ("Relu",), "worker": in_process}
    workshop.compile(source, cache=EngineCache(tmp_path / "attacker", 2**30), **options)
    cache = EngineCache(tmp_path / "cache", 2**30, trust=Trust(allow_unsigned=frozenset()))
    workshop.compile(source, cache=cache, **options)
    for file in (tmp_path / "attacker").glob("*.*"):
        if file.suffix in (".engine", ".json"):
            (tmp_path / "cache" / file.name).write_bytes(file.read_bytes())

    assert workshop.compile(source, cache=cache, **options).engines_built == 2


def test_file_compiled_here_is_trusted_here(
    workshop: Any, source: pathlib.Path, in_process: Any, tmp_path: pathlib.Path
) -> None:
    cache = EngineCache(tmp_path / "cache", 2**30, trust=Trust(allow_unsigned=frozenset()))
    options = {"engine": "reference", "native_ops": ("Relu",), "worker": in_process}
    marked = workshop.compile_file(source, cache=cache, **options)
    unmarked = workshop.compile_file(source, **options)

    assert load_executable(marked, trust=cache.trust).description["segments"] == 2
    assert load_executable(unmarked, trust=cache.trust).description["segments"] == 0


def test_a_key_pair_is_readable_by_its_owner_and_never_overwritten(key: pathlib.Path, tmp_path: pathlib.Path) -> None:
    private, public = key.read_bytes(), key.with_name("signer.pub").read_bytes()

    with pytest.raises(KeyFileError, match=r"signer.pub: is there already, and keys are never overwritten"):
        generate_key(key)
    key.with_name("signer.pub").unlink()
    with pytest.raises(KeyFileError, match=r"signer: is there already, and keys are never overwritten"):
        generate_key(key)

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


def test_private_key_is_no_public_one(key: pathlib.Path) -> None:
    with pytest.raises(KeyFileError, match=r"signer: is no Ed25519 public key; give the .pub file"):
        read_public_key(key)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        pytest.param(with_engine_cut_short, SigningError, "the engine of segment_0 is damaged", id="engine-cut-short"),
        pytest.param(with_weight_changed, SigningError, "weights of segment_0 were changed", id="weight-changed"),
        pytest.param(with_field(format_version=9), SigningError, "format 9, this program reads 1", id="newer"),
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

    assert load_executable(split, trust=trust).description["segments"] == 2
