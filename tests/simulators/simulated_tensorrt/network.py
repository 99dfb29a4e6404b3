"""The network that a parser fills and a builder builds."""

from __future__ import annotations

from typing import Any

import onnx

from simulated_tensorrt.graphs import Tensor, describe
from simulated_tensorrt.real_parser import RealNetwork
from simulated_tensorrt.simulation import Bound
from simulated_tensorrt.values import Dims


class ITensor(Bound):
    name: str
    allowed_formats = 0xFFFF

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.name = tensor.name

    @property
    def shape(self) -> Dims:
        return Dims(self._tensor.shape)

    @property
    def dtype(self) -> Any:
        return self._trt.DataType[self._tensor.dtype]

    @property
    def is_shape_tensor(self) -> bool:
        return self._tensor.on_host


class INetworkDefinition(Bound):
    """Empty until a parser has filled it."""

    name = ""

    def __init__(self, builder: Any, flags: int) -> None:
        self._builder = builder
        self._flags = flags
        self._model: onnx.ModelProto | None = None
        self._real: RealNetwork | None = None
        self._tensors: tuple[Tensor, ...] = ()
        self._wrapped: list[ITensor] = []

    def _fill(self, model: onnx.ModelProto, real: RealNetwork) -> None:
        """Take a parsed model, and what the real parser has made of it."""
        self._model, self._real = model, real
        self._tensors = describe(model, real.sizes)
        self._wrapped = [self._trt.ITensor(tensor) for tensor in self._tensors]

    @property
    def builder(self) -> Any:
        return self._builder

    @property
    def flags(self) -> int:
        return self._flags

    @property
    def _strongly_typed(self) -> bool:
        return self._sim.release >= (11, 0) or self.get_flag(self._trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    def get_flag(self, flag: Any) -> bool:
        return bool(self._flags >> int(flag) & 1)

    @property
    def num_inputs(self) -> int:
        return sum(t.is_input for t in self._tensors)

    @property
    def num_outputs(self) -> int:
        return len(self._tensors) - self.num_inputs

    @property
    def num_layers(self) -> int:
        return self._real.network.num_layers if self._real else 0

    def get_input(self, index: int) -> ITensor | None:
        return self._wrapped[index] if 0 <= index < self.num_inputs else None

    def get_output(self, index: int) -> ITensor | None:
        return self._wrapped[self.num_inputs + index] if 0 <= index < self.num_outputs else None

    def get_layer(self, index: int) -> Any:
        return self._real.network.get_layer(index) if self._real else None
