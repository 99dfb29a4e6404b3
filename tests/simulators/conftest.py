"""Stand-ins for libraries whose native parts can't be installed here. What runs on them did not run on the library."""

from __future__ import annotations

import enum
import json
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx
import pytest

from engines.tensorrt_parser import make_logger

Refusals = Mapping[str, tuple[str, str]]
"""Error code and text of the parser, by operator."""


class Severity(enum.IntEnum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class ErrorCode(enum.Enum):
    (
        SUCCESS,
        INTERNAL_ERROR,
        MEM_ALLOC_FAILED,
        MODEL_DESERIALIZE_FAILED,
        INVALID_VALUE,
        INVALID_GRAPH,
        INVALID_NODE,
        UNSUPPORTED_GRAPH,
        UNSUPPORTED_NODE,
        UNSUPPORTED_NODE_ATTR,
        UNSUPPORTED_NODE_INPUT,
        UNSUPPORTED_NODE_DATATYPE,
        UNSUPPORTED_NODE_DYNAMIC,
        UNSUPPORTED_NODE_SHAPE,
        REFIT_FAILED,
    ) = range(15)


class ILogger:
    Severity = Severity
    started = False

    def __init__(self) -> None:
        self.started = True


class ITensor:
    def __init__(self, value: onnx.ValueInfoProto) -> None:
        self.name = value.name
        self.shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim)
        self.allowed_formats = 0


class INetworkDefinition:
    def __init__(self, *, strongly_typed: bool) -> None:
        self.strongly_typed = strongly_typed
        self.model: onnx.ModelProto | None = None
        self.inputs: list[ITensor] = []
        self.outputs: list[ITensor] = []

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_input(self, index: int) -> ITensor:
        return self.inputs[index]

    def get_output(self, index: int) -> ITensor:
        return self.outputs[index]


class ITimingCache:
    def __init__(self, measured: bytes) -> None:
        self.measured = measured

    def serialize(self) -> bytes:
        return self.measured + b"+"


class IOptimizationProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[Any, Any, Any]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:  # noqa: A002  (the library's names)
        if not all(low <= best <= high for low, best, high in zip(min, opt, max, strict=True)):
            raise ValueError("Shapes are not consistent")
        self.shapes[input] = (min, opt, max)


class IBuilderConfig:
    """Takes a timing cache only of the machine that it is on."""

    def __init__(self) -> None:
        self.builder_optimization_level = 3
        self.limits: dict[str, int] = {}
        self.profiles: list[IOptimizationProfile] = []
        self.cache: ITimingCache | None = None

    def set_memory_pool_limit(self, pool: str, pool_size: int) -> None:
        self.limits[pool] = pool_size

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        return ITimingCache(serialized_timing_cache)

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        fits = not cache.measured.startswith(b"other GPU")
        self.cache = cache if fits else self.cache
        return fits

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self.profiles.append(profile)
        return -1 if any(max(high) > 10**6 for _, _, high in profile.shapes.values()) else len(self.profiles) - 1


class Builder:
    """Refuses a logger whose base was not initialized, as the bindings do. An engine is a text of what it was told."""

    version = (11, 1)
    finds_engines = True

    def __init__(self, logger: ILogger) -> None:
        if not isinstance(logger, ILogger) or not logger.started:
            raise TypeError("__init__(): incompatible constructor arguments")
        self._logger = logger

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        return INetworkDefinition(strongly_typed=self.version[0] >= 11 or flags == 1 << 1)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> bytes | None:
        assert config.cache is not None
        assert all(t.allowed_formats == 1 for t in (*network.inputs, *network.outputs)), "a layout of its own choice"
        if not self.finds_engines:
            self._logger.log(Severity.ERROR, "out of memory")
            return None
        facts = {
            "level": config.builder_optimization_level,
            "limits": config.limits,
            "profiles": [profile.shapes for profile in config.profiles],
        }
        return json.dumps(facts).encode()


class ParserError:
    def __init__(self, code: ErrorCode, desc: str, node: int) -> None:
        self._code, self._desc, self._node = code, desc, node

    def code(self) -> ErrorCode:
        return self._code

    def desc(self) -> str:
        return self._desc

    def node(self) -> int:
        return self._node


class OnnxParser:
    """Walks the nodes and stops at the first one that it can't import; a network serves one question."""

    refuses: Refusals = types.MappingProxyType({})
    silent = False

    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        assert network.strongly_typed, "a weakly typed network"
        self._network, self._logger = network, logger
        self._errors: list[ParserError] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def parse(self, model: bytes, path: str | None = None) -> bool:
        return self.supports_model_v2(model, path)

    def supports_model_v2(self, model: bytes, path: str | None = None) -> bool:
        assert self._network.model is None, "the network is not empty"
        proto = self._network.model = onnx.ModelProto.FromString(model)
        self._network.inputs = [ITensor(value) for value in proto.graph.input]
        self._network.outputs = [ITensor(value) for value in proto.graph.output]
        assert proto.producer_name != "TensorRT"
        for number, node in enumerate(proto.graph.node):
            if node.op_type in self.refuses:
                code, text = self.refuses[node.op_type]
                self._logger.log(Severity.ERROR, text)
                if not self.silent:
                    self._errors.append(ParserError(ErrorCode[code], text, number))
                return False
        return True


@pytest.fixture
def tensorrt() -> Iterator[Callable[..., Any]]:
    """Makes a simulated tensorrt module of some version, whose parser refuses some operators."""

    def make(
        *,
        version: str = "11.1.0.1",
        refuses: Refusals | None = None,
        silent: bool = False,
        finds_engines: bool = True,
    ) -> Any:
        major, minor = (int(part) for part in version.split(".")[:2])
        module: Any = types.ModuleType("simulated_tensorrt")
        module.__version__ = version
        module.ILogger, module.ParserError, module.ErrorCode = ILogger, ParserError, ErrorCode
        module.Builder = type("Builder", (Builder,), {"version": (major, minor), "finds_engines": finds_engines})
        module.MemoryPoolType = types.SimpleNamespace(WORKSPACE="WORKSPACE")
        module.TensorFormat = enum.IntEnum("TensorFormat", {"LINEAR": 0})
        for kind in (IBuilderConfig, INetworkDefinition, IOptimizationProfile, ITimingCache):
            setattr(module, kind.__name__, kind)
        module.NetworkDefinitionCreationFlag = enum.IntEnum("Flag", {"STRONGLY_TYPED": 1 if major < 11 else 0})
        module.OnnxParser = type("OnnxParser", (OnnxParser,), {"refuses": refuses or {}, "silent": silent})
        return module

    yield make
    make_logger.cache_clear()


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    text = "g (float[2] x) => (float[2] y) { a = Relu(x) b = Softsign(a) y = Tanh(b) }"
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'), path)
    return path
