"""A deserialized TensorRT engine: its inputs and outputs, its profiles, and the scratch memory that it needs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.errors import EngineRejectedError
from trtnode.engines.tensorrt.element_types import ELEMENT_TYPES
from trtnode.engines.tensorrt.labelling.parser import make_logger
from trtnode.partitioner.graph.view import TensorSpec

Shape = tuple[int, ...]

RUNTIME_CACHE = "IRuntimeCache"
"""A class of TensorRT for RTX alone, which compiles an engine's kernels where the engine runs."""

NARROWED = {ir.DataType.DOUBLE: ir.DataType.FLOAT}
"""Types that TensorRT's parser replaces. No node has them unless the user allows it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """An input or output.

    Attributes:
        name: As in the envelope; engines are bound by name.
        dtype: Element type in the engine.
        narrowed: True if the model declares a wider type.
        on_host: True if the engine reads or writes it in the host's memory: a shape, not data.
    """

    name: str
    dtype: np.dtype
    narrowed: bool
    on_host: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """An optimization profile: ranges of inputs that an engine takes together.

    Attributes:
        shapes: The least and the largest size in each dimension, by input.
        values: The least and the largest elements of inputs that are shapes themselves.
        elements: Number of elements at the largest shapes. The profile with fewer is the closer fit.
    """

    shapes: Mapping[str, tuple[Shape, Shape]]
    values: Mapping[str, tuple[Shape, Shape]]
    elements: int

    def takes(self, shapes: Mapping[str, Shape], values: Mapping[str, np.ndarray]) -> bool:
        """Return whether inputs are within the bounds."""
        return all(_within(shapes[name], low, high) for name, (low, high) in self.shapes.items()) and all(
            _within(values[name].ravel().tolist(), low, high) for name, (low, high) in self.values.items()
        )


class LoadedEngine:
    """A deserialized engine. It is thread-safe, and its execution contexts run.

    Attributes:
        trt: The tensorrt module.
        inputs: In the envelope's order.
        outputs: In the envelope's order.
        profiles: By number; at least one.
        scratch_bytes: The most that an execution context needs, by profile.
        uses_graphs: True if executions may run as CUDA graphs.
    """

    def __init__(self, trt: Any, engine: Any, envelope: Envelope) -> None:
        """Describe an engine.

        Raises:
            EngineRejectedError: Its inputs or outputs are not the envelope's.
        """
        self.trt = trt
        self.uses_graphs = envelope.options.get("CUDA_GRAPHS") == "1"
        self._engine = engine
        self._runtime_config, self._runtime_cache = _runtime_config(trt, engine)
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        modes = {name: engine.get_tensor_mode(name) for name in names}
        _check_names("inputs", envelope.inputs, [n for n, mode in modes.items() if mode == trt.TensorIOMode.INPUT])
        _check_names("outputs", envelope.outputs, [n for n, mode in modes.items() if mode == trt.TensorIOMode.OUTPUT])
        self.inputs = tuple(self._binding(spec) for spec in envelope.inputs)
        self.outputs = tuple(self._binding(spec) for spec in envelope.outputs)
        self.profiles = tuple(self._profile(index) for index in range(max(engine.num_optimization_profiles, 1)))
        self.scratch_bytes = tuple(
            engine.get_device_memory_size_for_profile_v2(index) for index in range(len(self.profiles))
        )

    def choose_profile(self, shapes: Mapping[str, Shape], values: Mapping[str, np.ndarray]) -> int | None:
        """Return the number of the smallest profile that takes these inputs; None where none does."""
        fitting = [index for index, profile in enumerate(self.profiles) if profile.takes(shapes, values)]
        return min(fitting, key=lambda index: self.profiles[index].elements, default=None)

    def new_context(self) -> Any:
        """Create an execution context without scratch memory; None if the library fails."""
        strategy = self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
        return self._engine.create_execution_context(self._runtime_config or strategy)

    def take_kernels(self, kernels: bytes) -> bool:
        """Take kernels of an earlier process, before the first context is made. A CUDA context must be current."""
        return self._runtime_cache is not None and bool(self._runtime_cache.deserialize(kernels))

    def kernels(self) -> bytes:
        """Return the kernels that the library has compiled; empty where it compiles none at run time."""
        return b"" if self._runtime_cache is None else bytes(memoryview(self._runtime_cache.serialize()))

    def _binding(self, spec: TensorSpec) -> Binding:
        name = self._engine.get_tensor_dtype(spec.name).name
        built = ELEMENT_TYPES.get(name)
        if built is None or spec.dtype is None or built not in (spec.dtype, NARROWED.get(spec.dtype)):
            raise EngineRejectedError("TensorRT", f"{spec.name!r} is {name} in it, not {spec.dtype}.")
        return Binding(
            name=spec.name,
            dtype=built.numpy(),
            narrowed=built != spec.dtype,
            on_host=self._engine.get_tensor_location(spec.name) == self.trt.TensorLocation.HOST,
        )

    def _profile(self, index: int) -> Profile:
        shapes = {b.name: self._shapes(b.name, index) for b in self.inputs if not b.on_host}
        # The binding's keyword names are swapped in every release, so the arguments go by position.
        bounds = {b.name: self._engine.get_tensor_profile_values(index, b.name) for b in self.inputs if b.on_host}
        values = {name: (tuple(given[0]), tuple(given[2])) for name, given in bounds.items()}
        return Profile(shapes=shapes, values=values, elements=sum(math.prod(high) for _, high in shapes.values()))

    def _shapes(self, name: str, index: int) -> tuple[Shape, Shape]:
        low, _, high = self._engine.get_tensor_profile_shape(name, index)
        return tuple(low), tuple(high)


def deserialize(trt: Any, engine: bytes | memoryview, envelope: Envelope) -> LoadedEngine:
    """Load engine bytes. A CUDA context must be current.

    Args:
        trt: The tensorrt module.
        engine: As built. Plans are programs: their envelope must be verified.
        envelope: Of the engine.

    Raises:
        EngineRejectedError: TensorRT refuses the bytes, in its own words, or they are not what the envelope says.
    """
    logger = make_logger(trt)
    logger.take()
    try:
        runtime = trt.Runtime(logger)
        loaded = runtime.deserialize_cuda_engine(engine)
    except (RuntimeError, TypeError) as error:  # TypeError: the library gave no runtime
        raise EngineRejectedError("TensorRT", logger.told(str(error))) from error
    if loaded is None:
        raise EngineRejectedError("TensorRT", f"{logger.told()}{_why_invalid(trt, runtime, engine)}")
    return LoadedEngine(trt, loaded, envelope)


def _runtime_config(trt: Any, engine: Any) -> tuple[Any, Any]:
    """Make the settings of contexts whose kernels are compiled at run time, and the cache that the settings refer to.

    Returns:
        None twice where the library compiles no kernels at run time.
    """
    if not hasattr(trt, RUNTIME_CACHE):
        return None, None
    config = engine.create_runtime_config()
    cache = config.create_runtime_cache()
    config.set_execution_context_allocation_strategy(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    config.set_runtime_cache(cache)
    return config, cache


def _why_invalid(trt: Any, runtime: Any, engine: bytes | memoryview) -> str:
    """Return the library's diagnostics of engine bytes that it can't load; empty where it gives none."""
    if not hasattr(runtime, "get_engine_validity"):
        return ""
    _, found = runtime.get_engine_validity(engine)
    known = trt.EngineInvalidityDiagnostics.__members__.items()
    names = [name for name, bit in known if int(found) & int(bit)]
    return f" ({', '.join(names)})" if names else ""


def _check_names(kind: str, specs: Sequence[TensorSpec], built: Iterable[str]) -> None:
    given, expected = sorted(built), sorted(spec.name for spec in specs)
    if given != expected:
        raise EngineRejectedError("TensorRT", f"its {kind} are {given}, its envelope's {expected}.")


def _within(sizes: Sequence[int], low: Shape, high: Shape) -> bool:
    return len(sizes) == len(low) and all(a <= s <= b for a, s, b in zip(low, sizes, high, strict=True))
