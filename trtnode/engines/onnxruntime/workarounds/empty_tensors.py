"""Operators whose kernels end the process where an input has no elements, or too few axes. Such a run is refused."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping

import onnx

from trtnode.engines.onnxruntime.workarounds.mentioned import model_with
from trtnode.partitioner.model import protobuf_walk

ENDING = ("ConvTranspose", "GRU", "LSTM")
"""Found by running every case of the onnx suite with each of its sizes as 0. Division by 0, and empty work shared out
among threads, are what they have in common."""


LEAST_RANKS = {"MaxRoiPool": (4, 2), "ReverseSequence": (2, 1), "RoiAlign": (4, 2, 1)}
"""Of the inputs of operators whose kernels read that many sizes unchecked. Where a model declares them, ONNX Runtime
refuses others."""


def unsafe_inputs(
    source: pathlib.Path | onnx.ModelProto,
) -> tuple[Mapping[str, str], Mapping[str, tuple[str, int]]]:
    """Find the inputs that must not be empty, and those that need axes.

    Args:
        source: A file or a small model.

    Returns:
        The inputs that an operator of `ENDING` depends on, each with its name; and the inputs of no declared rank that
        one of `LEAST_RANKS` reads, with its name and the least rank.
    """
    model = model_with(source, (*ENDING, *LEAST_RANKS))
    return ({}, {}) if model is None else (_inputs_behind_ending(model), _least_ranks(model))


def _inputs_behind_ending(model: onnx.ModelProto) -> dict[str, str]:
    ending = {name: name for name in ENDING}
    for function in model.functions:  # a function may call one that stands behind it, but exporters write none such
        if found := next(_within(function.node, ending), None):
            ending[function.name] = found
    behind: dict[str, str] = {}
    for node in reversed(model.graph.node):
        found = next(_within([node], ending), None) or next((behind[o] for o in node.output if o in behind), None)
        if found is not None:
            behind.update(dict.fromkeys((i for n in protobuf_walk.nodes_within([node]) for i in n.input if i), found))
    return {value.name: behind[value.name] for value in model.graph.input if value.name in behind}


def _least_ranks(model: onnx.ModelProto) -> dict[str, tuple[str, int]]:
    free = {value.name for value in model.graph.input if not value.type.tensor_type.HasField("shape")}
    return {
        name: (node.op_type, rank)
        for node in protobuf_walk.nodes_within(model.graph.node)
        for name, rank in zip(node.input, LEAST_RANKS.get(node.op_type, ()), strict=False)
        if name in free
    }


def _within(nodes: Iterable[onnx.NodeProto], ending: Mapping[str, str]) -> Iterator[str]:
    return (ending[node.op_type] for node in protobuf_walk.nodes_within(nodes) if node.op_type in ending)
