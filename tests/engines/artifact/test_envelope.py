"""No engine byte reaches a library before its envelope is checked; whatever does not fit is answered natively."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparison import AssertSame, RunPlainly
from edited_models import attribute
from trtnode.engines.artifact.checksum import stamp_checksum
from trtnode.engines.artifact.envelope import Device, Envelope, current_platform
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineError, EngineRejectedError
from trtnode.engines.runtime.engine_loading import load_engine
from trtnode.partitioner.graph.view import TensorSpec
from workshop import Workshop

GRAPH = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) r = Relu(e) y = Neg(r) }"
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
ENGINE = b"engine bytes"

ENVELOPE = Envelope(
    backend="reference",
    backend_version="1.0",
    platform=current_platform(),
    device=Device(features="avx", name="a processor"),
    precision_asked="fp32",
    precision_effective="fp32",
    options={"HINT": "f32"},
    inputs=(TensorSpec(name="x", dtype=ir.DataType.FLOAT, shape=("N", 3, None)),),
    outputs=(TensorSpec(name="ü", dtype=ir.DataType.INT64, shape=None),),
    engine_sha256="a1fd1c9b9baf52c15cba7ebd9c6ce7eee0a0c7ea2c1c2dd6a9db1e8e3f1c5c7f",
    segment_sha256="0" * 64,
    builder_version="0.1.0",
)


def test_envelope_survives_json() -> None:
    assert Envelope.from_json(ENVELOPE.to_json(), "s") == ENVELOPE


def test_json_is_canonical() -> None:
    text = ENVELOPE.to_json()

    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert "ü" in text


@pytest.mark.parametrize(
    ("changes", "here", "message"),
    [
        pytest.param({"engine_sha256": "f" * 64}, {}, r"its bytes are damaged \(sha256 differs\)", id="bytes"),
        pytest.param({}, {"version": "2.0"}, r"reference version '1\.0'; here it is '2\.0'", id="version"),
        pytest.param({"platform": "plan9-mips"}, {}, r"platform 'plan9-mips'; here it is", id="platform"),
        pytest.param(
            {},
            {"device": Device(features="amx", name="a processor")},
            "processor 'avx'; here it is 'amx'",
            id="processor",
        ),
        pytest.param(
            {"engine_sha256": "f" * 64, "platform": "plan9-mips"}, {"version": "2.0"}, "sha256", id="hash-comes-first"
        ),
    ],
)
def test_engine_for_something_else_is_refused(changes: dict[str, Any], here: dict[str, Any], message: str) -> None:
    envelope = dataclasses.replace(ENVELOPE, engine_sha256=sha256(ENGINE))
    envelope = dataclasses.replace(envelope, **changes)

    with pytest.raises(EngineRejectedError, match=f"The engine of s can't be used: .*{message}"):
        envelope.verify(ENGINE, "s", **{"version": "1.0", "device": ENVELOPE.device, **here})


def test_processors_of_one_instruction_set_share_engines() -> None:
    envelope = dataclasses.replace(ENVELOPE, engine_sha256=sha256(ENGINE))

    envelope.verify(ENGINE, "s", version="1.0", device=Device(features="avx", name="another processor"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "can't be read", id="empty"),
        pytest.param("{", "can't be read", id="cut-short"),
        pytest.param("null", "can't be read", id="null"),
        pytest.param("[]", "can't be read", id="list"),
        pytest.param("{}", "can't be read .*format_version", id="no-fields"),
        pytest.param('"format_version"', "can't be read", id="string"),
        pytest.param("[" * 100_000, "can't be read", id="too-deep"),
        pytest.param('{"format_version": 3}', "format 3, this program reads 2", id="newer"),
        pytest.param('{"format_version": 1}', "format 1, this program reads 2; compile the model again", id="older"),
        pytest.param('{"format_version": 2}', "can't be read", id="fields-missing"),
        pytest.param(ENVELOPE.to_json()[:-1] + ',"new":1}', "can't be read .*new", id="unknown-field"),
    ],
)
def test_text_that_is_no_envelope_is_refused(text: str, message: str) -> None:
    with pytest.raises(EngineRejectedError, match=message):
        Envelope.from_json(text, "s")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(leaf for key, inner in items for leaf in leaves(inner, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], new)
    return copied


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_change_of_an_envelope_is_refused_or_harmless(data: st.DataObject, compiled_proto: onnx.ModelProto) -> None:
    node = compiled_proto.graph.node[0]
    engine = attribute(node, "engine").t.raw_data
    fields = json.loads(attribute(node, "envelope").s)
    path = data.draw(st.sampled_from(leaves(fields)[1:]))

    text = json.dumps(replaced(fields, path, data.draw(json_values)))

    try:
        loaded = load_engine("s", Envelope.from_json(text, "s"), engine)
    except EngineError:
        return
    loaded.bind([FEEDS["x"]], None)
    np.testing.assert_allclose(loaded.run()[0], np.exp(FEEDS["x"]), rtol=0.02)


@pytest.fixture(scope="module")
def source(shared_workshop: Workshop) -> pathlib.Path:
    return shared_workshop.write(GRAPH)


@pytest.fixture(scope="module")
def compiled_proto(source: pathlib.Path, shared_workshop: Workshop) -> onnx.ModelProto:
    """Two engines around a native node."""
    return shared_workshop.compile(source, native_ops=("Relu",)).model


def with_envelope(**changes: Any) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        fields = json.loads(attribute(node, "envelope").s)
        attribute(node, "envelope").s = json.dumps(fields | changes).encode()

    return change


def with_envelope_text(text: bytes) -> Callable[[onnx.NodeProto], None]:
    return lambda node: setattr(attribute(node, "envelope"), "s", text)


def with_engine(change_bytes: Callable[[bytes], bytes]) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        tensor = attribute(node, "engine").t
        tensor.raw_data = change_bytes(tensor.raw_data)
        tensor.dims[:] = [len(tensor.raw_data)]

    return change


def with_bit_flipped(position: float) -> Callable[[onnx.NodeProto], None]:
    def flip(data: bytes) -> bytes:
        index = int(position * (len(data) - 1))
        return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]

    return with_engine(flip)


def with_sidecar(path: str) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        attribute(node, "engine").CopyFrom(onnx.helper.make_attribute("engine_file", path))

    return change


def without(name: str) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)

    return change


def with_attribute(name: str, value: Any) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        without(name)(node)
        node.attribute.append(onnx.helper.make_attribute(name, value))

    return change


DAMAGE = {
    "first-bit-of-the-engine-flipped": (with_bit_flipped(0), "sha256 differs"),
    "a-bit-in-the-middle-flipped": (with_bit_flipped(0.5), "sha256 differs"),
    "last-bit-flipped": (with_bit_flipped(1), "sha256 differs"),
    "engine-cut-short": (with_engine(lambda data: data[: len(data) // 2]), "sha256 differs"),
    "engine-empty": (with_engine(lambda data: b""), "sha256 differs"),
    "other-version": (with_envelope(backend_version="1999.1"), "openvino version '1999.1'; here it is"),
    "other-platform": (with_envelope(platform="linux-riscv64"), "platform 'linux-riscv64'; here it is"),
    "other-processor": (with_envelope(device={"features": "AMX", "name": "x"}), "processor 'AMX'; here it is"),
    "unknown-backend": (with_envelope(backend="abacus"), "no engine 'abacus'"),
    "no-properties": (with_envelope(options=None), "its envelope can't be read"),
    "unknown-properties": (with_envelope(options={"NO_SUCH": "1"}), "can't be used"),
    "newer-format": (with_envelope(format_version=7), "format 7, this program reads 2"),
    "broken-json": (with_envelope_text(b'{"backend": '), "its envelope can't be read"),
    "envelope-is-no-utf8": (with_envelope_text(b"\xff{}"), "wrong type"),
    "empty-envelope": (with_envelope_text(b""), "its envelope can't be read"),
    "other-input-type": (
        with_envelope(inputs=[{"name": "x", "dtype": "DOUBLE", "shape": ["N", 4]}]),
        "it has 'x' as float64\\[N, 4\\], its node has float32\\[N, 4\\]",
    ),
    "more-inputs": (with_envelope(inputs=[{"name": "x", "dtype": "FLOAT", "shape": [4]}] * 2), "built for 2 inputs"),
    "no-outputs": (with_envelope(outputs=[]), "built for 0 outputs"),
    "no-engine": (without("engine"), "neither an engine nor the path of a sidecar"),
    "no-envelope": (without("envelope"), "no envelope"),
    "no-attributes": (lambda node: node.ClearField("attribute"), "no envelope"),
    "engine-is-no-tensor": (with_attribute("engine", 5), "wrong type"),
    "envelope-is-no-text": (with_attribute("envelope", 5), "wrong type"),
    "sidecar-missing": (with_sidecar("gone.engine"), r"'gone.engine' can't be read \(No such file"),
    "sidecar-outside": (with_sidecar("../other.engine"), "'../other.engine' is outside the model's folder"),
    "sidecar-absolute": (with_sidecar("/etc/hostname"), "'/etc/hostname' is outside the model's folder"),
    "sidecar-in-a-loop-of-links": (with_sidecar("loop"), r"'loop' can't be read \(Too many levels"),
    "sidecar-is-the-folder": (with_sidecar("."), "can't be read"),
    "sidecar-with-a-zero-byte": (with_sidecar("a\0b"), "can't be read"),
    "sidecar-damaged": (with_sidecar("damaged.engine"), "sha256 differs"),
}


@pytest.mark.parametrize(("damage", "message"), [pytest.param(*d, id=name) for name, d in DAMAGE.items()])
def test_engine_that_does_not_fit_is_answered_natively_with_a_warning(
    damage: Callable[[onnx.NodeProto], None],
    message: str,
    compiled_proto: onnx.ModelProto,
    source: pathlib.Path,
    tmp_path: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
    caplog: pytest.LogCaptureFixture,
) -> None:
    proto = onnx.ModelProto.FromString(compiled_proto.SerializeToString())
    damage(proto.graph.node[0])
    path = tmp_path / "model" / "damaged.onnx"
    path.parent.mkdir()
    stamp_checksum(proto, path)
    path.write_bytes(proto.SerializeToString())
    (path.parent / "damaged.engine").write_bytes(b"something")
    (path.parent / "loop").symlink_to("loop")
    (tmp_path / "other.engine").write_bytes(attribute(compiled_proto.graph.node[0], "engine").t.raw_data)

    executable = open_model(path)

    assert executable.facts.segments == 1
    (rejected,) = executable.facts.rejected
    assert [r.message for r in caplog.records if r.name == "trtnode.engines.runtime.engine_loading"] == [
        f"{rejected} Its nodes run natively; compile the model again on this machine."
    ]
    assert re.search(message, rejected)
    same(executable.run(FEEDS), plain(source, FEEDS))


def test_node_whose_inputs_were_joined_is_answered_natively(
    workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    source = workshop.write("g (float[4] x, float[4] z) => (float[4] y) { e = Exp(z) y = Sub(x, e) }")
    proto = workshop.compile(source).model
    proto.graph.node[0].input[:] = ["x", "x"]
    stamp_checksum(proto, source)
    path = workshop.write(proto)
    feeds = {"x": FEEDS["x"][0], "z": FEEDS["x"][1]}

    executable = open_model(path)

    assert "built for 2 inputs, its node has 1" in executable.facts.rejected[0]
    same(executable.run(feeds), plain(path, feeds))
