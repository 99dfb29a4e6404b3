"""Operators that TensorRT's tables take in their plain form, without TensorRT."""

from __future__ import annotations

import pathlib

import onnx
import pytest

from tensorrt_labels import BASE_CASES, OPSETS, verdicts
from trtnode.engines.tensorrt.labelling.labels import label
from trtnode.engines.tensorrt.labelling.operators import (
    DTYPES,
)
from trtnode.partitioner.cut.labels import Verdict, label_nodes
from trtnode.partitioner.cut.options import Allowance, PartitionOptions
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model


@pytest.mark.parametrize("op", sorted(DTYPES))
def test_every_operator_of_the_table_is_taken_in_its_plain_form(op: str) -> None:
    verdict = verdicts(BASE_CASES[op].replace("#", op), tuple(Allowance), OPSETS.get(op, 24))[op]

    assert verdict == Verdict()


def test_nodes_of_which_nothing_is_known_are_labelled_without_an_exception() -> None:
    model = onnx.ModelProto(ir_version=10, opset_import=[onnx.OperatorSetIdProto(version=24)])
    for op in sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}):
        schema = onnx.defs.get_schema(op)
        inputs = [f"{op}_in_{n}" for n in range(schema.min_input)]
        outputs = [f"{op}_out_{n}" for n in range(schema.min_output)]
        model.graph.node.append(onnx.helper.make_node(op, inputs, outputs))
        model.graph.input.extend(onnx.ValueInfoProto(name=name) for name in inputs)

    graph = Graph.of(view_model(model, pathlib.Path("model.onnx")))

    assert all(label(node).detail.endswith(".") for node in graph.nodes if node.op.inputs)
    assert not any(v.supported for v in label_nodes(graph, label, PartitionOptions()).values())
