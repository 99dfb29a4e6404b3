"""A compiled file whose nodes or weights are damaged is not loaded; what answers don't follow from may change."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from edited_models import attribute
from model_texts import parse
from trtnode.engines.artifact.checksum import CHECKSUM, FORMAT, FORMAT_NUMBER, WRITTEN_BY_US
from trtnode.engines.artifact.files import write_model
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineError
from trtnode.partitioner.errors import ModelFileError, PartitionError
from trtnode.serving.cli.program import main
from workshop import Workshop, prepare_and_open

FEEDS = {"x": np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)}
LATER = r"it was written by a newer release \(format '2'; this one reads 1\)\. Update trtnode, or compile"
DAMAGED = r"its nodes or weights are damaged \(they differ from its checksum\)\. Copy the file again"


@pytest.fixture(scope="module")
def compiled(shared_workshop: Workshop) -> pathlib.Path:
    """Two engines around a native node that has weights."""
    text = "g (float[N,64] x) => (float[N,64] y) { m = MatMul(x, w) r = PRelu(m, s) y = MatMul(r, w) }"
    proto = parse(text, w=floats(64, 64), s=floats(64))
    return shared_workshop.compile_file(shared_workshop.write(proto), native_ops=("PRelu",))


def flip(message: onnx.TensorProto) -> None:
    message.raw_data = bytes([message.raw_data[0] ^ 1]) + message.raw_data[1:]


def damaged(path: pathlib.Path, tmp_path: pathlib.Path, damage: Callable[[onnx.ModelProto], object]) -> pathlib.Path:
    proto = onnx.load(path)
    damage(proto)
    onnx.save(proto, tmp_path / "damaged.onnx")
    return tmp_path / "damaged.onnx"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda m: flip(m.graph.initializer[0]), id="weight-of-an-engine"),
        pytest.param(lambda m: flip(m.graph.initializer[1]), id="weight-of-a-native-node"),
        pytest.param(lambda m: setattr(m.graph.node[1], "op_type", "Sub"), id="native-node"),
        pytest.param(lambda m: setattr(m.functions[0].node[0], "op_type", "Mul"), id="node-of-a-function"),
        pytest.param(lambda m: setattr(attribute(m.graph.node[0], "envelope"), "s", b"{}"), id="envelope"),
        pytest.param(lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", 11), id="type-of-an-output"),
        pytest.param(lambda m: setattr(m.opset_import[0], "version", 20), id="opset"),
    ],
)
def test_damaged_nodes_and_weights_are_not_loaded(
    compiled: pathlib.Path, tmp_path: pathlib.Path, damage: Callable[[onnx.ModelProto], object]
) -> None:
    path = damaged(compiled, tmp_path, damage)

    with pytest.raises(ModelFileError, match=DAMAGED):
        open_model(path)
    with pytest.raises(ModelFileError, match=DAMAGED):
        prepare_and_open(path, CompileOptions(engine="openvino"))


def test_damaged_weights_beside_the_model_are_not_loaded(compiled: pathlib.Path, tmp_path: pathlib.Path) -> None:
    write_model(onnx.load(compiled), tmp_path / "large.onnx", inline_limit_bytes=1000)
    open_model(tmp_path / "large.onnx")
    (weights,) = tmp_path.glob("large.onnx.*.data")
    content = bytearray(weights.read_bytes())
    content[100] ^= 1
    weights.write_bytes(content)

    with pytest.raises(ModelFileError, match=DAMAGED):
        open_model(tmp_path / "large.onnx")


def test_damaged_engine_bytes_run_natively(
    compiled: pathlib.Path, tmp_path: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    path = damaged(compiled, tmp_path, lambda m: flip(attribute(m.graph.node[0], "engine").t))

    executable = open_model(path)

    assert "its bytes are damaged (sha256 differs)" in executable.facts.rejected[0]
    same(executable.run(FEEDS), plain(path, FEEDS))


def test_tools_may_edit_metadata_and_move_weights(compiled: pathlib.Path, tmp_path: pathlib.Path) -> None:
    proto = onnx.load(compiled)
    proto.producer_version, proto.doc_string = "7", "deployed"
    proto.metadata_props.add(key="owner", value="vision")
    onnx.save(proto, tmp_path / "moved.onnx", save_as_external_data=True, location="moved.data", size_threshold=0)

    assert open_model(tmp_path / "moved.onnx").facts.segments == 2


def test_a_compiled_file_from_before_any_release_is_refused(compiled: pathlib.Path, tmp_path: pathlib.Path) -> None:
    proto = onnx.load(compiled)
    kept = [entry for entry in proto.metadata_props if entry.key != CHECKSUM]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    onnx.save(proto, tmp_path / "old.onnx")

    with pytest.raises(ModelFileError, match=r"old\.onnx.* it has no checksum, .*Compile the model again\."):
        open_model(tmp_path / "old.onnx")


def as_later_release(model: onnx.ModelProto) -> None:
    """Write what today's readers don't know: a part of an engine, another kind of checksum, and another report."""
    attribute(model.graph.node[0], "engine").name = "engine_pages"
    later = {FORMAT: str(FORMAT_NUMBER + 1), CHECKSUM: "blake3:0", WRITTEN_BY_US: "[]"}
    for entry in model.metadata_props:
        entry.value = later.get(entry.key, entry.value)


@pytest.mark.parametrize("command", ["explain FILE", "strip FILE -o out.onnx --keep openvino"])
def test_a_file_of_a_later_format_says_so_before_anything_of_it_is_hashed(
    compiled: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = damaged(compiled, tmp_path, as_later_release)

    with pytest.raises(ModelFileError, match=LATER):
        open_model(path)
    assert main(command.replace("FILE", str(path)).split()) == 1
    assert re.search(LATER, capsys.readouterr().err)


@pytest.mark.parametrize("number", ["", "-1", "1.5", "9" * 30])
def test_a_format_that_is_no_number_is_that_of_a_later_release(
    compiled: pathlib.Path, tmp_path: pathlib.Path, number: str
) -> None:
    proto = onnx.load(compiled)
    next(entry for entry in proto.metadata_props if entry.key == FORMAT).value = number
    onnx.save(proto, tmp_path / "later.onnx")

    with pytest.raises(ModelFileError, match="written by a newer release"):
        open_model(tmp_path / "later.onnx")


@pytest.mark.parametrize("seed", range(10))
def test_a_flipped_bit_is_refused_or_changes_no_answer(
    seed: int, compiled: pathlib.Path, tmp_path: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    content = bytearray(compiled.read_bytes())
    place = int(np.random.default_rng(seed).integers(len(content)))
    content[place] ^= 1 << seed % 8
    path = tmp_path / "flipped.onnx"
    path.write_bytes(content)

    try:
        executable = open_model(path)
    except (EngineError, PartitionError):
        return
    same(executable.run(FEEDS), plain(compiled, FEEDS))
