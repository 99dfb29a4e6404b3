"""The ONNX parser: NVIDIA's own judges a model, and its network is kept beside what the simulator runs."""

from __future__ import annotations

import contextlib
import ctypes
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import onnx

from simulated_tensorrt.graphs import narrow_doubles
from simulated_tensorrt.network import INetworkDefinition
from simulated_tensorrt.real_parser import RealNetwork
from simulated_tensorrt.simulation import Bound
from simulated_tensorrt.values import ILogger, Speaks

Problem = tuple[int, str, str]
"""Index of a node, -1 for none; error code and text."""


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


class OnnxParser(Speaks):
    """One parser and one network serve one question."""

    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        super().__init__(logger)
        self._network = network
        self._errors: list[ParserError] = []
        self._loaded: onnx.ModelProto | None = None

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        return self._load(model, path)

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        """Copy a weight from memory. The real library reads it later, so it has to live until the work is done."""
        weights = {tensor.name: tensor for tensor in (self._loaded.graph.initializer if self._loaded else ())}
        tensor = weights.get(name)
        itemsize = 0 if tensor is None else onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        if tensor is None or size != math.prod(tensor.dims) * itemsize:
            self._error(f"Initializer {name} is unknown, or has another size.")
            return False
        tensor.CopyFrom(onnx.TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims))
        tensor.raw_data = ctypes.string_at(data, size)
        return True

    def parse(self, model: Any, path: str | None = None) -> bool:
        return self._load(model, path) and self._import()

    def parse_model_proto(self) -> bool:
        return self._import()

    def supports_model_v2(self, model: Any, path: str | None = None) -> bool:
        return self.parse(model, path)

    def _load(self, model: Any, path: str | None) -> bool:
        try:
            self._loaded = onnx.ModelProto.FromString(bytes(memoryview(model)))
            if path is not None:
                onnx.load_external_data_for_model(self._loaded, str(pathlib.Path(path).parent))
        except Exception as error:  # whatever protobuf and onnx say of broken bytes
            self._refuse("MODEL_DESERIALIZE_FAILED", f"Failed to parse the ONNX model: {error}")
            return False
        return True

    def _refuse(self, code: str, text: str, number: int = -1, node: onnx.NodeProto | None = None) -> None:
        self._error(text)
        if not self._sim.faults.parser_is_silent:
            self._errors.append(self._trt.ParserError(code, text, number, node))

    def _import(self) -> bool:
        if self._network._model is not None:
            self._refuse("INVALID_GRAPH", "The network is not empty.")
            return False
        assert self._loaded is not None
        model = self._loaded
        real = RealNetwork(model.SerializeToString())
        problems = self._asked_for(model) or self._refusals(real)
        for number, code, text in problems:
            self._refuse(code, text, number, model.graph.node[number] if number >= 0 else None)
        if problems:
            return False
        _correct_outputs(model, real.network)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        narrow_doubles(model)
        self._network._fill(onnx.shape_inference.infer_shapes(model, data_prop=True), real)
        return True

    def _refusals(self, real: RealNetwork) -> Sequence[Problem]:
        """Return those of the real parser, unless plugins of TensorRT would mend them."""
        return real.refusals if self._sim.is_rtx or not real.needs_plugin else ()

    def _asked_for(self, model: onnx.ModelProto) -> Sequence[Problem]:
        """Return the first refusal that a test asks for."""
        refuses = self._sim.faults.refuses
        found = ((number, *refuses[n.op_type]) for number, n in enumerate(model.graph.node) if n.op_type in refuses)
        return [*found][:1]


def _correct_outputs(model: onnx.ModelProto, network: Any) -> None:
    """Give outputs the fixed shapes that the real parser makes, whatever the model declares."""
    made = {tensor.name: tensor for tensor in map(network.get_output, range(network.num_outputs))}
    for value in model.graph.output:
        with contextlib.suppress(KeyError, RuntimeError, ValueError):  # the library knows no rank
            sizes = tuple(made[value.name].shape)
            if -1 not in sizes:
                dims = [onnx.TensorShapeProto.Dimension(dim_value=size) for size in sizes]
                value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
