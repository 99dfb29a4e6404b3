"""From segments to answers: backends, the compiler, the engine cache and the hybrid executor."""

from engines.alignment import AlignedValue, Alignment, align
from engines.cache import EngineCache
from engines.compiled_model import CompiledModel
from engines.compiler import compile_model, partition_model
from engines.errors import (
    EngineError,
    ExecutionError,
    InvalidInputError,
    ModelLoadError,
    UnknownBackendError,
)
from engines.executor import Executable
from engines.options import BuildOptions, CompileOptions
from engines.prepare import load_executable, prepare_model
from engines.registry import ENGINE_NAMES
from engines.worker import Worker

__all__ = [
    "ENGINE_NAMES",
    "AlignedValue",
    "Alignment",
    "BuildOptions",
    "CompileOptions",
    "CompiledModel",
    "EngineCache",
    "EngineError",
    "Executable",
    "ExecutionError",
    "InvalidInputError",
    "ModelLoadError",
    "UnknownBackendError",
    "Worker",
    "align",
    "compile_model",
    "load_executable",
    "partition_model",
    "prepare_model",
]
