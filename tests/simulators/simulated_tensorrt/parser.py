"""The ONNX parser: fills a network, or tells which node it can't import."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import onnx

from engines.tensorrt.labelling import operators
from simulated_tensorrt.graphs import DTYPES, misread_uint8, narrow_doubles
from simulated_tensorrt.network import INetworkDefinition
from simulated_tensorrt.reader import ModelReader
from simulated_tensorrt.values import ILogger

FLOATS = frozenset({"FLOAT", "HALF", "BF16"})

MIXED_TYPES = frozenset({"Cast", "CastLike", "DequantizeLinear", "If", "Loop", "QuantizeLinear", "Resize", "Scan"})
"""Operators whose inputs may be of several floating-point types."""

Problem = tuple[int, onnx.NodeProto | None, str, str]
"""Index of a node, -1 for none; the node; error code and text."""


class OnnxParser(ModelReader):
    """One parser and one network serve one question."""

    flags = 0

    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        super().__init__(logger)
        self._network = network
        self._count = 0
        self.set_flag(self._trt.OnnxParserFlag.NATIVE_INSTANCENORM)

    def set_flag(self, flag: Any) -> None:
        self.flags |= 1 << int(flag)

    def clear_flag(self, flag: Any) -> None:
        self.flags &= ~(1 << int(flag))

    def get_flag(self, flag: Any) -> bool:
        return bool(self.flags >> int(flag) & 1)

    def supports_operator(self, op_name: str) -> bool:
        return op_name in operators.DTYPES

    def parse(self, model: Any, path: str | None = None) -> bool:
        return self._load(model, path) and self._import()

    def parse_from_file(self, model: str) -> bool:
        return self.parse(pathlib.Path(model).read_bytes(), model)

    def parse_model_proto(self) -> bool:
        return self._import()

    def supports_model_v2(self, model: Any, path: str | None = None) -> bool:
        return self.parse(model, path)

    @property
    def num_subgraphs(self) -> int:
        return len(self._runs())

    def get_subgraph_nodes(self, index: int) -> list[int]:
        return self._runs()[index]

    def is_subgraph_supported(self, index: int) -> bool:
        return not self._errors and self.num_subgraphs == 1

    def _import(self) -> bool:
        if self._network._model is not None:
            self._refuse("INVALID_GRAPH", "The network is not empty.")
            return False
        assert self._loaded is not None
        model = onnx.shape_inference.infer_shapes(self._loaded, data_prop=True)
        self._count = len(model.graph.node)
        problems = list(self._problems(model))
        for number, node, code, text in problems:
            self._refuse(code, text, number, node)
        if problems:
            return False
        if misread_uint8(model):
            self._warn("TensorRT doesn't support UINT8 Quantization, reinterpreting it as INT8.")
        narrow_doubles(model)
        self._network._fill(onnx.shape_inference.infer_shapes(model, data_prop=True))
        return True

    def _runs(self) -> list[list[int]]:
        """Nodes without an error, in runs."""
        bad = {error.node() for error in self._errors}
        runs: list[list[int]] = []
        for number in range(self._count):
            if number in bad:
                continue
            if runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        return runs

    def _problems(self, model: onnx.ModelProto) -> Iterator[Problem]:
        """Static errors of all nodes; then, where there are none, the first that comes of importing a node."""
        types = _element_types(model)
        static = [*_wrong_graph(model, types), *_unknown_nodes(model)]
        yield from static or self._first_import_error(model, types)

    def _first_import_error(self, model: onnx.ModelProto, types: dict[str, int]) -> Iterator[Problem]:
        for number, node in enumerate(model.graph.node):
            if node.op_type in self._sim.faults.refuses:
                code, text = self._sim.faults.refuses[node.op_type]
                yield number, node, code, text
                return
            if self._network._strongly_typed and _mixes_floats(node, types):
                text = f"In node {number}: {node.op_type} has inputs of different types in a strongly typed network"
                yield number, node, "UNSUPPORTED_NODE_DATATYPE", text
                return


def _wrong_graph(model: onnx.ModelProto, types: dict[str, int]) -> Iterator[Problem]:
    if model.producer_name == "TensorRT":
        yield -1, None, "UNSUPPORTED_GRAPH", "Models of the producer TensorRT take a special path."
    for value in (*model.graph.input, *model.graph.output):
        if types[value.name] not in DTYPES:
            yield -1, None, "UNSUPPORTED_GRAPH", f"The type of {value.name} is not supported."


def _unknown_nodes(model: onnx.ModelProto) -> Iterator[Problem]:
    """The parser looks at the name alone, whatever the domain."""
    functions = {(f.domain, f.name) for f in model.functions}
    for number, node in enumerate(model.graph.node):
        if node.op_type not in operators.DTYPES and (node.domain, node.op_type) not in functions:
            yield number, node, "UNSUPPORTED_NODE", f"In node {number}: no importer for {node.op_type}"


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {**types, **{value.name: value.type.tensor_type.elem_type for value in values}}


def _mixes_floats(node: onnx.NodeProto, types: dict[str, int]) -> bool:
    kinds = {DTYPES.get(types.get(name, 0), "") for name in node.input}
    return node.op_type not in MIXED_TYPES and len(kinds & FLOATS) > 1
