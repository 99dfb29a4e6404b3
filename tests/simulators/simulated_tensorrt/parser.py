"""The ONNX parser: fills a network, or tells which node it can't import."""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Iterator
from typing import Any

import onnx

from engines import tensorrt_ops
from simulated_tensorrt.graphs import DTYPES, narrow_doubles
from simulated_tensorrt.network import INetworkDefinition
from simulated_tensorrt.simulation import Bound
from simulated_tensorrt.values import ILogger, Speaks

FLOATS = frozenset({"FLOAT", "HALF", "BF16"})

MIXED_TYPES = frozenset({"Cast", "CastLike", "DequantizeLinear", "If", "Loop", "QuantizeLinear", "Resize", "Scan"})
"""Operators whose inputs may be of several floating-point types."""


class ParserError(Bound):
    """Every fact is asked for by a call."""

    def __init__(self, code: str, desc: str, number: int, node: onnx.NodeProto | None) -> None:
        self._code, self._desc, self._number = code, desc, number
        self._node = node or onnx.NodeProto()

    def code(self) -> Any:
        return self._trt.ErrorCode[self._code]

    def desc(self) -> str:
        return self._desc

    def node(self) -> int:
        return self._number

    def node_name(self) -> str:
        return self._node.name

    def node_operator(self) -> str:
        return self._node.op_type

    def file(self) -> str:
        return "ModelImporter.cpp"

    def func(self) -> str:
        return "importModel"

    def line(self) -> int:
        return 0

    def local_function_stack(self) -> list[str]:
        return []

    def local_function_stack_size(self) -> int:
        return 0


class OnnxParser(Speaks):
    """One parser and one network serve one question."""

    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        super().__init__(logger)
        self._network = network
        self._errors: list[ParserError] = []
        self._loaded: onnx.ModelProto | None = None
        self._count = 0
        self.flags = 1 << int(self._trt.OnnxParserFlag.NATIVE_INSTANCENORM)

    def set_flag(self, flag: Any) -> None:
        self.flags |= 1 << int(flag)

    def clear_flag(self, flag: Any) -> None:
        self.flags &= ~(1 << int(flag))

    def get_flag(self, flag: Any) -> bool:
        return bool(self.flags >> int(flag) & 1)

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def clear_errors(self) -> None:
        self._errors.clear()

    def supports_operator(self, op_name: str) -> bool:
        return op_name in tensorrt_ops.DTYPES

    def parse(self, model: Any, path: str | None = None) -> bool:
        return self._load(model, path) and self._import()

    def parse_from_file(self, model: str) -> bool:
        return self.parse(pathlib.Path(model).read_bytes(), model)

    def supports_model_v2(self, model: Any, path: str | None = None) -> bool:
        return self.parse(model, path)

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        return self._load(model, path)

    def parse_model_proto(self) -> bool:
        return self._import()

    def _load(self, model: Any, path: str | None) -> bool:
        try:
            self._loaded = onnx.ModelProto.FromString(bytes(memoryview(model)))
            if path is not None:
                onnx.load_external_data_for_model(self._loaded, str(pathlib.Path(path).parent))
        except Exception as error:
            self._refuse("MODEL_DESERIALIZE_FAILED", f"Failed to parse the ONNX model: {error}")
            return False
        return True

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        """Copy a weight from memory. The real parser reads the memory later, so it has to live until the build ends."""
        weights = {tensor.name: tensor for tensor in (self._loaded.graph.initializer if self._loaded else ())}
        tensor = weights.get(name)
        if tensor is None or size != _weight_bytes(tensor):
            self._error(f"Initializer {name} is unknown, or has another size.")
            return False
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.raw_data = ctypes.string_at(data, size)
        return True

    def _import(self) -> bool:
        if self._network._model is not None:
            self._refuse("INVALID_GRAPH", "The network is not empty.")
            return False
        assert self._loaded is not None
        model = onnx.shape_inference.infer_shapes(self._loaded, data_prop=True)
        self._count = len(model.graph.node)
        if model.producer_name == "TensorRT":
            self._refuse("UNSUPPORTED_GRAPH", "Models of the producer TensorRT take a special path.")
        for number, node, code, text in self._problems(model):
            self._refuse(code, text, number, node)
        if self._errors or (self._silent_refusal(model)):
            return False
        narrow_doubles(model)
        self._network._fill(onnx.shape_inference.infer_shapes(model, data_prop=True))
        return True

    @property
    def num_subgraphs(self) -> int:
        return len(self._runs())

    def get_subgraph_nodes(self, index: int) -> list[int]:
        return self._runs()[index]

    def is_subgraph_supported(self, index: int) -> bool:
        return not self._errors and self.num_subgraphs == 1

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

    def _refuse(self, code: str, text: str, number: int = -1, node: onnx.NodeProto | None = None) -> None:
        self._error(text)
        if not self._sim.faults.parser_is_silent:
            self._errors.append(self._trt.ParserError(code, text, number, node))

    def _silent_refusal(self, model: onnx.ModelProto) -> bool:
        return self._sim.faults.parser_is_silent and next(self._problems(model), None) is not None

    def _problems(self, model: onnx.ModelProto) -> Iterator[tuple[int, onnx.NodeProto | None, str, str]]:
        """Static errors of all nodes; the first that comes of importing a node is the last."""
        types = _element_types(model)
        for value in model.graph.input:
            if types[value.name] not in DTYPES:
                yield -1, None, "UNSUPPORTED_GRAPH", f"Input {value.name} has a type that is not supported."
        functions = {(f.domain, f.name) for f in model.functions}
        for number, node in enumerate(model.graph.node):
            if node.op_type not in tensorrt_ops.DTYPES and (node.domain, node.op_type) not in functions:
                yield number, node, "UNSUPPORTED_NODE", f"In node {number}: no importer for {node.op_type}"
        for number, node in enumerate(model.graph.node):
            if node.op_type in self._sim.faults.refuses:
                yield number, node, *self._sim.faults.refuses[node.op_type]
                return
            if self._network._strongly_typed and _mixes_floats(node, types):
                text = f"In node {number}: {node.op_type} has inputs of different types in a strongly typed network"
                yield number, node, "UNSUPPORTED_NODE_DATATYPE", text
                return


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {**types, **{value.name: value.type.tensor_type.elem_type for value in values}}


def _mixes_floats(node: onnx.NodeProto, types: dict[str, int]) -> bool:
    kinds = {DTYPES.get(types.get(name, 0), "") for name in node.input}
    return node.op_type not in MIXED_TYPES and len(kinds & FLOATS) > 1


def _weight_bytes(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
