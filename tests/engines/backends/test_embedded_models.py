"""Engine bytes that are ONNX models are whole in themselves: none may name a file, wherever in the model."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

import onnx
import onnx_ir as ir
import pytest

from envelopes import PLAN
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.errors import EngineRejectedError
from trtnode.engines.sparse.library import missing_reason
from trtnode.partitioner.graph.view import TensorSpec

SECRET = b"0123456789abcdef"


def outside(name: str = "w") -> onnx.TensorProto:
    """A tensor whose data are those of a file in the working directory."""
    place = onnx.StringStringEntryProto(key="location", value="secret")
    kind, there = onnx.TensorProto.FLOAT, onnx.TensorProto.EXTERNAL
    return onnx.TensorProto(name=name, data_type=kind, dims=[4], data_location=there, external_data=[place])


def adding(*nodes: onnx.NodeProto, **fields: object) -> onnx.ModelProto:
    """``y = x + w``, where the fields or nodes say what ``w`` is."""
    spec = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    graph = onnx.GraphProto(name="g", input=spec[:1], output=spec[1:], **fields)
    graph.node.extend([*nodes, onnx.helper.make_node("Add", ["x", "w"], ["y"])])
    opsets = [onnx.helper.make_opsetid(domain, 21 if not domain else 1) for domain in ("", "local")]
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=opsets)


def in_an_initializer() -> onnx.ModelProto:
    return adding(initializer=[outside()])


def in_a_sparse_initializer() -> onnx.ModelProto:
    indices = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [4], range(4))
    return adding(sparse_initializer=[onnx.SparseTensorProto(values=outside(), indices=indices, dims=[4])])


def in_an_attribute() -> onnx.ModelProto:
    return adding(onnx.helper.make_node("Constant", [], ["w"], value=outside()))


def in_a_subgraph() -> onnx.ModelProto:
    result = onnx.helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, [4])
    body = onnx.GraphProto(name="b", output=[result], initializer=[outside("v")])
    true = onnx.helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True])
    branch = onnx.helper.make_node("If", ["c"], ["w"], then_branch=body, else_branch=body)
    return adding(branch, initializer=[true])


def in_a_function() -> onnx.ModelProto:
    model = adding(onnx.helper.make_node("Secret", [], ["w"], domain="local"))
    constant = onnx.helper.make_node("Constant", [], ["w"], value=outside())
    model.functions.append(
        onnx.helper.make_function("local", "Secret", [], ["w"], [constant], [onnx.helper.make_opsetid("", 21)])
    )
    return model


@pytest.fixture(autouse=True)
def secret(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("backend", ["sparse", "reference", "onnxruntime"])
@pytest.mark.parametrize(
    "place", [in_an_initializer, in_a_sparse_initializer, in_an_attribute, in_a_subgraph, in_a_function]
)
def test_engine_bytes_that_name_a_file_are_refused(backend: str, place: Callable[[], onnx.ModelProto]) -> None:
    if backend == "sparse" and (problem := missing_reason()):
        pytest.skip(problem)
    specs = [TensorSpec(name=name, dtype=ir.DataType.FLOAT, shape=(4,)) for name in "xy"]
    envelope = dataclasses.replace(PLAN, backend=backend, inputs=tuple(specs[:1]), outputs=tuple(specs[1:]))

    with pytest.raises(EngineRejectedError, match=r"has its data in file 'secret', and an engine holds all of its own"):
        get_backend(backend).load(place().SerializeToString(), envelope)
