"""The module ``tensorrt`` as this project uses it, over the bindings of TensorRT 8.6.

Networks are weakly typed there: layers may run in float32 where the model says float16, and in float16 anywhere as soon
as one tensor is float16. int64 is int32 inside a network, and refused at its inputs and outputs.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import TensorProto

VARIABLE = "TENSORRT_8"
"""Of the environment: the folder in which the package ``tensorrt`` of release 8.6 lies."""

STANDS_FOR = "10.3.0"
INNER_TACTICS = ("EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS")
"""Sources of tactics that need no other library; the others are cuBLAS and cuDNN."""

FEATURES = ("DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805", "PROFILE_SHARING_0806")
"""Ways of later releases, to be switched on. Execution contexts on several streams share a profile."""

TYPE_FLAGS = {TensorProto.FLOAT16: "FP16", TensorProto.INT8: "INT8"}
LOOSE = {(TensorProto.INT64, "INT32"): "INT64", (TensorProto.FLOAT16, "FLOAT"): "HALF"}
"""Types inside a network by the model's type and the library's."""


def bindings_of(folder: pathlib.Path) -> Any:
    """Import the package ``tensorrt`` of a folder under another name."""
    path = folder / "tensorrt" / "__init__.py"
    spec = importlib.util.spec_from_file_location("bindings_of_tensorrt_8", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its native part is imported relatively
    spec.loader.exec_module(module)
    return module


def of_process() -> Any:
    """The adapter over the bindings that the environment names."""
    return adapt(bindings_of(pathlib.Path(os.environ[VARIABLE])))


def adapt(bindings: Any) -> Any:
    """Make the module.

    Args:
        bindings: The module ``tensorrt`` of release 8.6.
    """
    module = types.ModuleType("tensorrt", __doc__)
    vars(module).update({name: value for name, value in vars(bindings).items() if not name.startswith("_")})
    vars(module).update({kind.__name__: functools.partial(kind, bindings) for kind in (Builder, OnnxParser, Runtime)})
    vars(module).update(
        __version__=f"{STANDS_FOR}+{bindings.__version__}",
        ExecutionContextAllocationStrategy=types.SimpleNamespace(USER_MANAGED="USER_MANAGED"),
        IProgressMonitor=type("IProgressMonitor", (), {}),
        NetworkDefinitionCreationFlag=types.SimpleNamespace(STRONGLY_TYPED=1),
    )
    return module


class Over:
    """An object of the bindings; what a subclass does not define is the object's own."""

    def __init__(self, trt: Any, real: Any) -> None:
        self.trt, self.real = trt, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Builder(Over):
    def __init__(self, trt: Any, logger: Any) -> None:
        super().__init__(trt, trt.Builder(logger))

    def create_network(self, flags: int = 0) -> Network:
        explicit = 1 << int(self.trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        return Network(self.trt, self.real.create_network(explicit))

    def create_builder_config(self) -> Config:
        config = self.real.create_builder_config()
        config.set_tactic_sources(sum(1 << int(getattr(self.trt.TacticSource, name)) for name in INNER_TACTICS))
        for name in FEATURES:
            config.set_preview_feature(getattr(self.trt.PreviewFeature, name), True)
        return Config(config)

    def build_serialized_network(self, network: Network, config: Config) -> Any:
        for name in network.flags:
            config.set_flag(getattr(self.trt.BuilderFlag, name))
        return self.real.build_serialized_network(network.real, config.real)


class Config:
    """Settings of a build, whose progress nobody hears of."""

    def __init__(self, real: Any) -> None:
        vars(self)["real"] = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "progress_monitor":
            setattr(self.real, name, value)


class Network(Over):
    """A network, and what the parser has read of its model.

    Attributes:
        types: ONNX's types of what its nodes give.
        flags: Names of the builder's flags for the types of the model.
    """

    types: dict[str, int]
    flags: list[str]

    def get_layer(self, index: int) -> Layer:
        return Layer(self.real.get_layer(index), self.types)


class Layer:
    def __init__(self, real: Any, types: dict[str, int]) -> None:
        self.num_outputs, self._real, self._types = real.num_outputs, real, types

    def get_output(self, index: int) -> Any:
        """Return a tensor, with the model's type where the library's stands for it."""
        tensor = self._real.get_output(index)
        if tensor is None or (name := LOOSE.get((self._types.get(tensor.name, 0), tensor.dtype.name))) is None:
            return tensor
        return types.SimpleNamespace(name=tensor.name, shape=tensor.shape, dtype=types.SimpleNamespace(name=name))


class OnnxParser(Over):
    def __init__(self, trt: Any, network: Network, logger: Any) -> None:
        super().__init__(trt, trt.OnnxParser(network.real, logger))
        self._network, self._refusals = network, list[Refusal]()

    @property
    def num_errors(self) -> int:
        return len(self._refusals) or self.real.num_errors

    def get_error(self, index: int) -> Any:
        return self._refusals[index] if self._refusals else self.real.get_error(index)

    def parse(self, model: bytes, path: str | None = None) -> bool:
        proto = onnx.ModelProto.FromString(model)
        results = (*proto.graph.value_info, *proto.graph.output)
        self._network.types = {value.name: value.type.tensor_type.elem_type for value in results}
        self._network.flags = [name for kind, name in TYPE_FLAGS.items() if kind in set(element_types(proto.graph))]
        code = self.trt.ErrorCode.UNSUPPORTED_NODE
        self._refusals = [Refusal(code, proto.graph, value.name) for value in wide_tensors(proto.graph)]
        return not self._refusals and self.real.parse(model, path)

    supports_model_v2 = parse


class Refusal:
    """An error of the parser about an int64 input or output."""

    def __init__(self, code: Any, graph: onnx.GraphProto, name: str) -> None:
        self._code, self._name = code, name
        users = (i for i, node in enumerate(graph.node) if name in (*node.input, *node.output))
        self._node = next(users, -1)

    def code(self) -> Any:
        return self._code

    def desc(self) -> str:
        return f"{self._name!r} is int64 at the border of an engine, and TensorRT 8.6 has int32 alone. Cast it outside."

    def node(self) -> int:
        return self._node


class Runtime(Over):
    def __init__(self, trt: Any, logger: Any) -> None:
        super().__init__(trt, trt.Runtime(logger))

    def deserialize_cuda_engine(self, data: Any) -> Engine | None:
        engine = self.real.deserialize_cuda_engine(data)
        return None if engine is None else Engine(self.trt, engine)


class Engine(Over):
    def get_device_memory_size_for_profile_v2(self, index: int) -> int:
        size: int = self.real.device_memory_size
        return size

    def get_tensor_profile_values(self, index: int, name: str) -> list[list[int]]:
        values: list[list[int]] = self.real.get_profile_shape_input(index, name)
        return values

    def create_execution_context(self, strategy: str) -> Context | None:
        """Create a context with profile 0, which only the first one of an engine has by itself."""
        context = self.real.create_execution_context_without_device_memory()
        if context is None or (
            context.active_optimization_profile < 0 and not context.set_optimization_profile_async(0, 0)
        ):
            return None
        return Context(self.trt, context)


class Context(Over):
    def set_device_memory(self, address: int, size: int) -> None:
        self.real.device_memory = address


def element_types(graph: onnx.GraphProto) -> Iterator[int]:
    """Types of weights, inputs, and tensors that are known."""
    yield from (tensor.data_type for tensor in graph.initializer)
    yield from (value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output))


def wide_tensors(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Inputs and outputs of int64."""
    weights = {tensor.name for tensor in graph.initializer}
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.INT64 and value.name not in weights:
            yield value
