"""The bindings of TensorRT 8.6 as far as this project's adapter needs them, over the simulated TensorRT.

``api.json`` has what the real bindings have, read from them: members of classes, numbers of enumerations. The stand-in
has nothing else. Nothing here ran on TensorRT.
"""

from __future__ import annotations

import json
import pathlib
import types
from collections.abc import Sequence
from typing import Any

from real_signatures import public_members
from simulated_tensorrt import Simulation, builder, config, context, engine, network, parser
from simulated_tensorrt.builder import BuildStoppedError
from simulated_tensorrt.enums import BoundDataType, BoundEnum
from simulated_tensorrt.surface import CLASSES, PLAIN_CLASSES, Absent

RELEASE = "8.6.0"
API = json.loads((pathlib.Path(__file__).parent / "api.json").read_text())
USER_MANAGED = types.SimpleNamespace(name="USER_MANAGED")


class Builder(builder.Builder):
    def create_network(self, flags: int = 0) -> Any:
        if not flags & 1 << int(self._trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH):
            raise ValueError("The parser takes networks with an explicit batch alone.")
        return super().create_network(flags)

    def _build(self, network: Any, config: Any) -> Any:
        for dtype, flag in (("HALF", "FP16"), ("INT8", "INT8")):
            if dtype in network._types() and not config.get_flag(self._trt.BuilderFlag[flag]):
                raise BuildStoppedError(f"The network has {dtype} tensors, but the builder flag {flag} is not set.")
        return super()._build(network, config)


class IBuilderConfig(config.IBuilderConfig):
    def set_tactic_sources(self, tactic_sources: int) -> bool:
        self._tactics = tactic_sources
        return True

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        self._features = {**getattr(self, "_features", {}), feature.name: enable}

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "tactics": self._tactics, "features": self._features}


class INetworkDefinition(network.INetworkDefinition):
    _strongly_typed = False

    def get_layer(self, index: int) -> Any:
        layer = super().get_layer(index)
        outputs = [self._loose(layer.get_output(number)) for number in range(layer.num_outputs)]
        return types.SimpleNamespace(num_outputs=layer.num_outputs, get_output=outputs.__getitem__)

    def _loose(self, tensor: Any) -> Any:
        kinds = {"INT64": "INT32", "HALF": "FLOAT"}
        dtype = self._trt.DataType[kinds.get(tensor.dtype.name, tensor.dtype.name)]
        return types.SimpleNamespace(name=tensor.name, shape=tensor.shape, dtype=dtype)

    def _types(self) -> set[str]:
        assert self._real is not None
        layers = [self._real.network.get_layer(index) for index in range(self.num_layers)]
        return {layer.get_output(number).dtype.name for layer in layers for number in range(layer.num_outputs)}


class OnnxParser(parser.OnnxParser):
    def supports_model(self, model: Any, path: str | None = None) -> tuple[bool, list[Any]]:
        return self.parse(model, path), []


class ParserError(parser.ParserError):
    def code(self) -> Any:
        codes = self._trt.ErrorCode.__members__
        return codes.get(self._code, codes["UNSUPPORTED_NODE"])


class ICudaEngine(engine.ICudaEngine):
    _contexts = 0

    @property
    def device_memory_size(self) -> int:
        return max(self._plan.scratch)

    def get_profile_shape_input(self, profile_index: int, binding: str) -> list[list[int]]:
        return engine.ICudaEngine.get_tensor_profile_values(self, profile_index, binding)  # type: ignore[arg-type]

    def create_execution_context_without_device_memory(self) -> Any:
        made = engine.ICudaEngine.create_execution_context(self, USER_MANAGED)
        if made is not None and self._contexts:
            made._bound.profile = -1
        self._contexts += 1
        return made


class IExecutionContext(context.IExecutionContext):
    device_memory = property(
        fset=lambda self, memory: context.IExecutionContext.set_device_memory(
            self, memory, self._engine.device_memory_size
        )
    )

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        return self._bound.profile >= 0 and super().set_input_shape(name, shape)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        shared = self._engine._plan.settings["features"].get("PROFILE_SHARING_0806")
        return bool(shared) and super().set_optimization_profile_async(profile_index, stream_handle)


OWN = (Builder, IBuilderConfig, INetworkDefinition, OnnxParser, ParserError, ICudaEngine, IExecutionContext)


def make_bindings(simulation: Simulation) -> Any:
    """Make the module ``tensorrt`` of release 8.6."""
    module = types.ModuleType("tensorrt", "Simulated: nothing here runs on a GPU.")
    vars(module)["__version__"] = simulation.version
    kinds = {kind.__name__: kind for kind in (*CLASSES, *PLAIN_CLASSES, *OWN)}
    for name, members in API.items():
        if isinstance(members, dict):
            vars(module)[name] = (BoundDataType if name == "DataType" else BoundEnum)(name, members)
        else:
            kind = kinds[name]
            absent = {member: Absent() for member in public_members(kind) if member not in (*members, "__init__")}
            vars(module)[name] = type(name, (kind,), {"_sim": simulation, "_trt": module, **absent})
    return module
