"""Stand-ins for libraries whose native parts can't be installed here. What runs on them did not run on the library."""

from __future__ import annotations

import enum
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


class Network:
    def __init__(self, *, strongly_typed: bool) -> None:
        self.strongly_typed = strongly_typed
        self.asked = False


class Builder:
    """Refuses a logger whose base was not initialized, as the bindings do."""

    version = (11, 1)

    def __init__(self, logger: ILogger) -> None:
        if not isinstance(logger, ILogger) or not logger.started:
            raise TypeError("__init__(): incompatible constructor arguments")

    def create_network(self, flags: int = 0) -> Network:
        return Network(strongly_typed=self.version[0] >= 11 or flags == 1 << 1)


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

    def __init__(self, network: Network, logger: ILogger) -> None:
        assert network.strongly_typed, "a weakly typed network"
        self._network, self._logger = network, logger
        self._errors: list[ParserError] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def supports_model_v2(self, model: bytes, path: str | None = None) -> bool:
        assert not self._network.asked, "the network is not empty"
        self._network.asked = True
        proto = onnx.ModelProto.FromString(model)
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

    def make(*, version: str = "11.1.0.1", refuses: Refusals | None = None, silent: bool = False) -> Any:
        major, minor = (int(part) for part in version.split(".")[:2])
        module: Any = types.ModuleType("simulated_tensorrt")
        module.__version__ = version
        module.ILogger, module.ParserError, module.ErrorCode = ILogger, ParserError, ErrorCode
        module.Builder = type("Builder", (Builder,), {"version": (major, minor)})
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
