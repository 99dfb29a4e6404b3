"""Weights stand once in a compiled file: as initializers, which its engines refer to."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from comparison import AssertSame, RunPlainly
from model_texts import parse
from trtnode.engines.artifact.checksum import stamp_checksum
from trtnode.engines.artifact.files import write_model
from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.options import RunOptions

RNG = np.random.default_rng(0)
FEEDS = {"x": RNG.standard_normal((2, 200)).astype(np.float32)}
OPENVINO = CompileOptions(engine="openvino", all_engines=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two dense layers of 320 kB in all."""
    weights = [("w", (200, 300)), ("v", (300, 67))]
    model = parse(
        "dense (float[N, 200] x) => (float[N, 67] y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) }",
        opset=17,
        ir_version=8,
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name) for name, shape in weights
    )
    path = tmp_path_factory.mktemp("source") / "dense.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def compiled(source: pathlib.Path) -> pathlib.Path:
    path = source.with_name("compiled.onnx")
    compile_model(source, OPENVINO).save(path)
    return path


def attribute(model: onnx.ModelProto, name: str) -> onnx.AttributeProto:
    return next(a for node in model.graph.node for a in node.attribute if a.name == name)


def test_a_compiled_file_takes_a_tenth_more_than_its_source_at_most(
    source: pathlib.Path, compiled: pathlib.Path
) -> None:
    assert compiled.stat().st_size <= 1.1 * source.stat().st_size


def test_engines_and_plain_onnx_runtime_answer_from_such_a_file(
    source: pathlib.Path, compiled: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    executable = open_model(compiled)

    assert (executable.facts.segments, executable.facts.rejected) == (1, ())
    same(executable.run(FEEDS), plain(source, FEEDS))
    same(plain(compiled, FEEDS), plain(source, FEEDS))


def test_an_engine_without_the_model_s_weights_is_whole(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    compile_model(source, OPENVINO).without_fallback().save(tmp_path / "stripped.onnx")

    stripped = onnx.load(tmp_path / "stripped.onnx")
    assert not stripped.graph.initializer
    assert not any(a.name == "engine_references" for node in stripped.graph.node for a in node.attribute)
    assert open_model(tmp_path / "stripped.onnx").facts.segments == 1


def test_weights_and_engines_in_files_of_their_own_are_put_together(
    compiled: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    write_model(onnx.load(compiled), tmp_path / "large.onnx", inline_limit_bytes=1000)

    assert {path.suffix for path in tmp_path.iterdir()} == {".onnx", ".data", ".engine"}
    assert open_model(tmp_path / "large.onnx").facts.segments == 1


def test_a_signature_covers_the_whole_engine(compiled: pathlib.Path, tmp_path: pathlib.Path) -> None:
    generate_key(tmp_path / "signer")
    sign_model(compiled, tmp_path / "signed.onnx", tmp_path / "signer")

    trusting = open_model(tmp_path / "signed.onnx", run=RunOptions(trust=Trust.of([tmp_path / "signer.pub"], None)))

    assert trusting.facts.segments == 1


def with_references(change: Callable[[bytes], bytes]) -> Callable[[onnx.ModelProto], None]:
    def damage(model: onnx.ModelProto) -> None:
        tensor = attribute(model, "engine_references").t
        tensor.raw_data = change(tensor.raw_data)
        tensor.dims[:] = [len(tensor.raw_data)]

    return damage


def without_references(model: onnx.ModelProto) -> None:
    node = model.graph.node[0]
    node.attribute.remove(attribute(model, "engine_references"))


def with_references_as_a_number(model: onnx.ModelProto) -> None:
    attribute(model, "engine_references").CopyFrom(onnx.helper.make_attribute("engine_references", 5))


def with_another_weight(model: onnx.ModelProto) -> None:
    weight = model.graph.initializer[0]
    weight.raw_data = bytes(4) + weight.raw_data[4:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(with_references(lambda data: data[:-1]), "its bytes are damaged", id="cut-short"),
        pytest.param(with_references(lambda data: data[:40]), "damaged", id="one-left-out"),
        pytest.param(with_references(lambda data: data[40:] + data[:40]), "damaged", id="in-another-order"),
        pytest.param(with_references(lambda data: data * 50), "damaged", id="repeated"),
        pytest.param(with_references(lambda data: b"\xff" * len(data)), "damaged", id="of-negative-numbers"),
        pytest.param(with_references(lambda data: b"\x7f" * len(data)), "damaged", id="of-huge-numbers"),
        pytest.param(without_references, "sha256 differs", id="missing"),
        pytest.param(with_references_as_a_number, "wrong type", id="no-tensor"),
        pytest.param(with_another_weight, "weights that it replaces were changed", id="weight-changed"),
    ],
)
def test_a_damaged_reference_is_a_damaged_engine(
    damage: Callable[[onnx.ModelProto], None],
    message: str,
    compiled: pathlib.Path,
    tmp_path: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    model = onnx.load(compiled)
    damage(model)
    path = tmp_path / "damaged.onnx"
    stamp_checksum(model, path)
    onnx.save(model, path)

    executable = open_model(path)

    (rejected,) = executable.facts.rejected
    assert message in rejected
    same(executable.run(FEEDS), plain(path, FEEDS))
