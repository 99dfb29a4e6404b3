"""Readers of ONNX models: the parser and the refitter."""

from __future__ import annotations

import ctypes
import pathlib
from typing import Any

import onnx

from simulated_tensorrt.simulation import Bound
from simulated_tensorrt.values import ILogger, Speaks
from simulated_tensorrt.weights import size_bytes, without_values


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


class ModelReader(Speaks):
    """Holds one model and the errors that it gave."""

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
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
        if tensor is None or size != size_bytes(tensor):
            self._error(f"Initializer {name} is unknown, or has another size.")
            return False
        kept = without_values(tensor)
        kept.raw_data = ctypes.string_at(data, size)
        tensor.CopyFrom(kept)
        return True

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
