"""External data: found, read late, and refused where the model describes it wrongly."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import onnx
import pytest

from model_texts import ADD, ADD_CONSTANT, ADD_CONSTANT_IN_A_SUBGRAPH, save
from plain_runtime import assert_equal, run
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import ExternalDataError, ModelFileError
from trtnode.partitioner.model.external_data import take_data_inside
from trtnode.partitioner.model.loading import load_model, read_proto
from trtnode.partitioner.model.protobuf_walk import tensors
from trtnode.partitioner.passes.clean_up import clean_up

ADD_CONSTANT_IN_A_FUNCTION = """<ir_version: 10, opset_import: ["": 17, "f": 1]> g (float[3] x) => (float[3] y) {
    y = f.plus(x)
}
<domain: "f", opset_import: ["": 17]> plus (v) => (r) {
    w = Constant<value = float[3] {0, 0, 0}>()
    r = Add(v, w)
}"""

WEIGHTS = np.array([10, 20, 30], np.float32)
PLACES = [
    pytest.param(ADD, id="initializer"),
    pytest.param(ADD_CONSTANT, id="constant"),
    pytest.param(ADD_CONSTANT_IN_A_SUBGRAPH, id="constant-in-a-body"),
    pytest.param(ADD_CONSTANT_IN_A_FUNCTION, id="constant-in-a-function"),
]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model's own folder, with weights in it and beside it."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "w.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    return folder


def with_external_weights(model: str, location: str = "w.bin", **entries: object) -> onnx.ModelProto:
    """The model with the data of its tensor ``w`` outside."""
    proto = onnx.parser.parse_model(model)
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[3])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    if model is ADD:
        proto.graph.initializer.append(tensor)
    else:
        constant_of(proto).attribute[0].t.CopyFrom(tensor)
    return proto


def constant_of(proto: onnx.ModelProto) -> onnx.NodeProto:
    holders = [proto.graph, *proto.functions, *(a.g for node in proto.graph.node for a in node.attribute)]
    return next(node for holder in holders for node in holder.node if node.op_type == "Constant")


@pytest.mark.parametrize("model", PLACES)
@pytest.mark.parametrize(
    "location", [pytest.param("w.bin", id="beside-the-model"), pytest.param("./w.bin", id="with-a-dot")]
)
def test_external_data_is_found_from_everywhere(
    model: str, location: str, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(folder, with_external_weights(model, location))
    monkeypatch.chdir("/")

    compiled = embed_engines(clean_up(load_model(path)), [], {})

    feeds = {"x": WEIGHTS, "c": np.array(True)}
    assert_equal(run(compiled, {v.name: feeds[v.name] for v in compiled.graph.input}), [WEIGHTS + WEIGHTS])


@pytest.mark.parametrize("model", PLACES)
@pytest.mark.parametrize(
    "location",
    [
        pytest.param("../w.bin", id="above"),
        pytest.param("sub/../../w.bin", id="around-a-corner"),
        pytest.param("/etc/hostname", id="absolute"),
        pytest.param("", id="nowhere"),
        pytest.param("w\0.bin", id="no-path-at-all"),
    ],
)
def test_external_data_outside_the_folder_is_refused(model: str, location: str, folder: pathlib.Path) -> None:
    path = save(folder, with_external_weights(model, location))

    with pytest.raises(ExternalDataError, match=r"tensor 'w' .* outside the model's folder\. Put the data") as caught:
        load_model(path)

    assert str(caught.value).startswith(f"{path}: the data of tensor 'w' should be in {location!r}, but ")


@pytest.mark.parametrize("location", ["a" * 5000, "loop"])
def test_external_data_at_no_place_is_refused(location: str, folder: pathlib.Path) -> None:
    (folder / "loop").symlink_to("pool")
    (folder / "pool").symlink_to("loop")
    path = save(folder, with_external_weights(ADD, location))

    with pytest.raises(ExternalDataError, match=r"tensor 'w' .* there is no such file"):
        load_model(path)


def test_a_link_that_leads_outside_is_refused(folder: pathlib.Path) -> None:
    (folder / "link.bin").symlink_to(folder.parent / "w.bin")
    path = save(folder, with_external_weights(ADD, "link.bin"))

    with pytest.raises(ExternalDataError, match="outside the model's folder"):
        load_model(path)


@pytest.mark.parametrize("model", PLACES)
def test_missing_external_data_is_refused(model: str, folder: pathlib.Path) -> None:
    path = save(folder, with_external_weights(model, "other.bin"))

    with pytest.raises(ExternalDataError, match=r"tensor 'w' should be in 'other.bin', but there is no such file") as e:
        load_model(path)

    assert str(path) in str(e.value)


@pytest.mark.parametrize(
    ("size", "entries", "needed"),
    [
        pytest.param(11, {"length": 12}, 12, id="shorter-than-it-says"),
        pytest.param(11, {}, 12, id="shorter-than-its-shape"),
        pytest.param(12, {"offset": 4, "length": 12}, 16, id="shorter-than-its-end"),
        pytest.param(12, {"offset": 4}, 16, id="shorter-than-its-shape-from-there-on"),
        pytest.param(4, {"length": 4}, 12, id="length-that-does-not-hold-the-shape"),
    ],
)
def test_external_data_that_is_too_short_is_refused(
    size: int, entries: dict[str, int], needed: int, folder: pathlib.Path
) -> None:
    (folder / "w.bin").write_bytes(b"\0" * size)
    path = save(folder, with_external_weights(ADD, **entries))

    with pytest.raises(ExternalDataError, match=f"tensor 'w' .* has {size} bytes of the {needed} that are needed"):
        load_model(path)


@pytest.mark.parametrize("entries", [{"offset": "start"}, {"offset": -4}, {"length": "1e3"}, {"length": "1" * 5000}])
def test_external_data_at_no_number_is_refused(entries: dict[str, str | int], folder: pathlib.Path) -> None:
    path = save(folder, with_external_weights(ADD, **entries))

    with pytest.raises(ExternalDataError, match=r"tensor 'w' .* is no number"):
        load_model(path)


def test_data_of_initializers_is_not_read_before_it_is_needed(folder: pathlib.Path) -> None:
    path = save(folder, with_external_weights(ADD))

    model = load_model(path)
    (folder / "w.bin").write_bytes(np.array([1, 2, 3], np.float32).tobytes())

    assert model.graph.initializers["w"].const_value.numpy().tolist() == [1, 2, 3]


def test_data_of_everything_else_is_read_at_once(folder: pathlib.Path) -> None:
    path = save(folder, with_external_weights(ADD_CONSTANT_IN_A_SUBGRAPH))

    model = load_model(path)
    (folder / "w.bin").write_bytes(np.array([1, 2, 3], np.float32).tobytes())

    constant = model.graph[0].attributes["then_branch"].as_graph()[0]
    assert constant.attributes["value"].as_tensor().numpy().tolist() == WEIGHTS.tolist()


def test_data_that_goes_missing_in_between_is_an_error_of_ours(folder: pathlib.Path) -> None:
    model = load_model(save(folder, with_external_weights(ADD)))
    (folder / "w.bin").unlink()

    with pytest.raises(ExternalDataError, match="there is no such file"):
        model.graph.initializers["w"].const_value.numpy()


@pytest.mark.parametrize("model", PLACES)
def test_a_model_and_its_data_may_both_be_links_into_a_store(model: str, folder: pathlib.Path) -> None:
    store = folder.parent / "store"
    store.mkdir()
    (store / "1a").write_bytes(with_external_weights(model, "weights").SerializeToString())
    (store / "2b").write_bytes(WEIGHTS.tobytes())
    (folder / "m.onnx").symlink_to("../store/1a")
    (folder / "weights").symlink_to("../store/2b")

    graph = clean_up(load_model(folder / "m.onnx"))

    assert "w" in str(embed_engines(graph, [], {}))


def test_data_may_have_several_names(folder: pathlib.Path) -> None:
    os.link(folder / "w.bin", folder / "other.bin")

    model = load_model(save(folder, with_external_weights(ADD, "other.bin")))

    assert model.graph.initializers["w"].const_value.numpy().tolist() == WEIGHTS.tolist()


def test_half_bytes_are_read_as_such(folder: pathlib.Path) -> None:
    (folder / "w.bin").write_bytes(b"\x21\x03")
    proto = with_external_weights(ADD)
    proto.graph.initializer[0].data_type = onnx.TensorProto.UINT4

    model = load_model(save(folder, proto))

    assert model.graph.initializers["w"].const_value.numpy().astype(int).tolist() == [1, 2, 3]


def test_an_unknown_element_type_is_refused(folder: pathlib.Path) -> None:
    proto = with_external_weights(ADD)
    proto.graph.initializer[0].data_type = 999

    with pytest.raises(ModelFileError, match="not a valid ONNX model"):
        load_model(save(folder, proto))


@pytest.mark.parametrize("model", PLACES)
def test_data_can_be_taken_inside(model: str, folder: pathlib.Path) -> None:
    path = save(folder, with_external_weights(model, offset=4, length=8))
    (folder / "w.bin").write_bytes(b"\0" * 4 + WEIGHTS.tobytes())
    proto = read_proto(path)

    take_data_inside(path, tensors(proto))

    (tensor,) = tensors(proto)
    assert onnx.numpy_helper.to_array(tensor).tolist() == WEIGHTS.tolist()
