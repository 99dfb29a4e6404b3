"""Reading model files, and the sentence for each file that is none."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest

from model_cases import Case
from model_texts import ADD, ADD_CONSTANT, ADD_CONSTANT_IN_A_SUBGRAPH, parse, save
from plain_runtime import assert_equal, run
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import ExternalDataError, ModelFileError, PartitionError
from trtnode.partitioner.model.loading import load_model, read_proto
from trtnode.partitioner.passes.clean_up import clean_up

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"

RELU = """<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Relu(x) }"""


def test_a_model_is_read(tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, RELU)

    model = load_model(path)

    assert [op.op_type for op in model.graph] == ["Relu"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("missing.onnx", "No such file", id="missing"),
        pytest.param("", "a folder, pipe or device", id="directory"),
        pytest.param("a-file/m.onnx", "Not a directory", id="below-a-file"),
    ],
)
def test_a_path_that_can_not_be_read_is_refused(name: str, problem: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a-file").touch()
    path = tmp_path / name

    with pytest.raises(ModelFileError, match=problem) as caught:
        load_model(path)

    assert str(path) in str(caught.value)
    assert "Check the path" in str(caught.value)
    assert caught.value.path == path


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"# A model, once\n" * 100, id="text"),
        pytest.param(bytes(range(256)) * 10, id="bytes"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"\x08\x0a", id="an-ir-version-and-nothing-more"),
        pytest.param(b"PK\x03\x04" + b"\x00" * 100, id="archive"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content: bytes, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)

    with pytest.raises(ModelFileError, match="not an ONNX") as caught:
        load_model(path)

    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kept", [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999])
def test_a_real_model_cut_short_is_refused(kept: float, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "digits.onnx"
    data = DIGITS.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])

    with pytest.raises(ModelFileError, match=r"cut short|no graph|operator set") as caught:
        load_model(path)

    assert "Export it again" in str(caught.value) or "compare the file sizes" in str(caught.value)


def test_a_small_model_cut_short_anywhere_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    data = onnx.parser.parse_model(RELU).SerializeToString()

    for length in range(len(data)):
        path.write_bytes(data[:length])

        with pytest.raises(ModelFileError, match=r"cut short|no graph|operator set"):
            load_model(path)


def test_a_model_without_opset_is_refused(tmp_path: pathlib.Path) -> None:
    proto = parse(RELU)
    del proto.opset_import[:]

    with pytest.raises(ModelFileError, match=r"names no operator set .* Export it again"):
        load_model(save(tmp_path, proto))


def test_a_future_opset_is_refused(tmp_path: pathlib.Path) -> None:
    proto = parse(RELU)
    proto.opset_import[0].version = 1000

    with pytest.raises(ModelFileError, match=r"needs ONNX opset 1000; onnx .* knows opsets up to .* Update"):
        load_model(save(tmp_path, proto))


def test_a_future_opset_of_another_domain_is_not_our_business(tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, RELU.replace('["": 17]', '["": 17, "mine": 1000]'))

    assert load_model(path).opset_imports["mine"] == 1000


def test_a_value_that_nothing_produces_is_refused(tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, ADD)

    with pytest.raises(ModelFileError, match="node 'Add' reads 'w', which nothing produces"):
        load_model(path)


def test_a_value_that_only_a_subgraph_reads_and_nothing_produces_is_refused(tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, ADD_CONSTANT_IN_A_SUBGRAPH.replace("Relu(x)", "Relu(nowhere)"))

    with pytest.raises(ModelFileError, match="node 'If' reads 'nowhere', which nothing produces"):
        load_model(path)


def test_an_output_that_nothing_produces_is_refused(tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, RELU.replace("(float[3] y)", "(float[3] y, float[3] z)"))

    with pytest.raises(ModelFileError, match="nothing produces the output 'z'"):
        load_model(path)


def test_nodes_that_form_a_cycle_are_refused(tmp_path: pathlib.Path) -> None:
    path = save(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
            a = Add(x, b)
            b = Relu(a)
            y = Neg(b)
        }""",
    )

    with pytest.raises(ModelFileError, match="its nodes form a cycle"):
        load_model(path)


def test_a_broken_field_is_named(tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, RELU.replace("{ y = Relu(x) }", "{ y = Relu(x)\n y = Neg(x) }"))

    with pytest.raises(ModelFileError, match=r"not a valid ONNX model: Output 'y' is redeclared .* Export it again"):
        load_model(path)


def test_nodes_are_sorted(tmp_path: pathlib.Path) -> None:
    path = save(
        tmp_path,
        """<ir_version: 10, opset_import: ["": 17]> g (float[3] x) => (float[3] y) {
            y = Neg(a)
            a = Relu(x)
        }""",
    )

    assert [op.op_type for op in load_model(path).graph] == ["Relu", "Neg"]


def test_negative_dimensions_are_unknown_ones(tmp_path: pathlib.Path) -> None:
    proto = parse(RELU)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1

    model = load_model(save(tmp_path, proto))

    assert [d.value for d in model.graph.inputs[0].shape] == [None]


def sparse_weights(indices: list) -> onnx.SparseTensorProto:
    values = onnx.numpy_helper.from_array(np.array([5, 6], np.float32), "w")
    return onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array(indices), "i"), [3])


@pytest.mark.parametrize(
    "indices", [pytest.param([0, 2], id="counted-through"), pytest.param([[0], [2]], id="by-coordinates")]
)
def test_sparse_initializers_are_made_dense_as_onnxruntime_does_it(
    indices: list[int] | list[list[int]], tmp_path: pathlib.Path
) -> None:
    proto = parse(ADD)
    proto.graph.sparse_initializer.append(sparse_weights(indices))
    feeds = {"x": np.ones(3, np.float32)}

    compiled = embed_engines(clean_up(load_model(save(tmp_path, proto))), [], {})

    assert_equal(run(compiled, feeds), run(proto, feeds))


def test_sparse_constants_are_made_dense(tmp_path: pathlib.Path) -> None:
    proto = parse(ADD_CONSTANT)
    proto.graph.node[0].attribute[0].CopyFrom(onnx.helper.make_attribute("sparse_value", sparse_weights([0, 2])))
    feeds = {"x": np.ones(3, np.float32)}

    compiled = embed_engines(clean_up(load_model(save(tmp_path, proto))), [], {})

    assert_equal(run(compiled, feeds), run(proto, feeds))


def test_sparse_data_that_does_not_fit_is_refused(tmp_path: pathlib.Path) -> None:
    proto = parse(ADD)
    proto.graph.sparse_initializer.append(sparse_weights([0, 7]))

    with pytest.raises(ModelFileError, match="not a valid ONNX model: index 7 is out of bounds"):
        load_model(save(tmp_path, proto))


def test_output_types_are_kept_for_writing(case: Case, tmp_path: pathlib.Path) -> None:
    source = parse(case.model)

    model = load_model(save(tmp_path, source))

    compiled = embed_engines(clean_up(model), [], {})
    assert [v.type for v in compiled.graph.output] == [v.type for v in source.graph.output]


def test_reading_leaves_the_protobuf_as_the_file_has_it(tmp_path: pathlib.Path) -> None:
    path = save(tmp_path, ADD_CONSTANT)

    assert read_proto(path) == parse(ADD_CONSTANT)


def test_every_error_of_loading_is_one_of_this_package() -> None:
    assert issubclass(ExternalDataError, ModelFileError)
    assert issubclass(ModelFileError, PartitionError)
