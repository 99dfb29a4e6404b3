"""Inputs and outputs that a context was given, and their consequences."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from simulated_tensorrt.executable import storage
from simulated_tensorrt.graphs import Shape, Tensor
from simulated_tensorrt.simulation import UsageError

ALIGNMENT = 256
"""Bytes, of each address on the device."""


class Bindings:
    """Shapes hold until the profile changes, addresses for ever.

    Attributes:
        profile: Index of the profile.
        shapes: Of the inputs that were set.
        addresses: Of inputs and outputs that were set; on the host for inputs that hold sizes.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._inputs = [t for t in engine._plan.tensors if t.is_input]
        self.profile = 0
        self.shapes: dict[str, Shape] = {}
        self.addresses: dict[str, int] = {}

    def select(self, profile: int) -> None:
        """Change the profile; shapes have to be set again."""
        if profile != self.profile:
            self.shapes.clear()
        self.profile = profile

    def misfit(self, name: str, shape: Shape) -> str:
        """Return why an input can't have a shape; empty if it can."""
        tensor = self._engine._tensors.get(name)
        if tensor is None or not tensor.is_input:
            return "there is no such input"
        low, _, high = (tuple(s) for s in self._engine.get_tensor_profile_shape(name, self.profile))
        if len(shape) != len(low):
            return f"the rank is {len(low)}"
        inside = all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True))
        return "" if inside else f"{shape} is outside of profile {self.profile}, {low} to {high}"

    def missing(self) -> list[str]:
        """Inputs whose shape, or value on the host, is not known."""
        shapeless = [t.name for t in self._inputs if -1 in t.shape and t.name not in self.shapes]
        return shapeless + [t.name for t in self._inputs if t.on_host and not self.addresses.get(t.name)]

    def input_shapes(self) -> dict[str, Shape]:
        """All of them.

        Raises:
            UsageError: Sizes of one name differ.
        """
        shapes = {t.name: self.shapes.get(t.name, t.shape) for t in self._inputs}
        known: dict[str, tuple[str, int]] = {}
        for tensor in self._inputs:
            for symbol, size in zip(tensor.symbols, shapes[tensor.name], strict=True):
                other, first = known.setdefault(symbol, (tensor.name, size))
                if symbol and first != size:
                    raise UsageError(f"dimension {symbol} is {first} in {other} and {size} in {tensor.name}")
        return shapes

    def host_values(self) -> dict[str, np.ndarray]:
        """Values of inputs on the host, read now.

        Raises:
            UsageError: One is outside of the profile.
        """
        return {t.name: self._host_value(t) for t in self._inputs if t.on_host}

    def _host_value(self, tensor: Tensor) -> np.ndarray:
        shape = self.shapes.get(tensor.name, tensor.shape)
        data = ctypes.string_at(self.addresses[tensor.name], math.prod(shape) * tensor.item_bytes)
        value = np.frombuffer(data, storage(tensor)).reshape(shape)
        low, _, high = self._engine._profile(self.profile)["values"][tensor.name]
        if not all(a <= v <= b for a, v, b in zip(low, value.ravel(), high, strict=True)):
            raise UsageError(f"the value of {tensor.name} is outside of profile {self.profile}")
        return value

    def output_shapes(self) -> dict[str, Shape]:
        """All of them, -1 where only a run tells.

        Raises:
            UsageError: Shapes or values of inputs contradict one another.
        """
        shapes, values = self.input_shapes(), self.host_values()
        found: dict[str, Shape] = self._engine._executable.output_shapes(shapes, values)
        return found

    def check_address(self, tensor: Tensor, *, has_allocator: bool) -> None:
        """Refuse an address that an enqueue can't work with.

        Raises:
            UsageError: It is not set, or not aligned.
        """
        address = self.addresses.get(tensor.name, 0)
        if not address and not has_allocator:
            raise UsageError(f"the address of {tensor.name} is not set")
        if address % ALIGNMENT and not tensor.on_host:
            raise UsageError(f"the address of {tensor.name} is not aligned to {ALIGNMENT} bytes")
