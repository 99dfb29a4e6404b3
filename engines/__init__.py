"""From segments to answers: backends, the compiler, the engine cache and the hybrid executor."""

import partitioner  # noqa: F401  (before anything imports onnx_ir)
from engines.alignment import AlignedValue, Alignment, align
from engines.budget import AccuracyBudget
from engines.cache import EngineCache
from engines.compiled_model import CompiledModel
from engines.compiler import compile_model
from engines.errors import (
    EngineError,
    ExecutionError,
    InvalidInputError,
    ModelLoadError,
    UnknownBackendError,
)
from engines.executor import Executable
from engines.labelling import partition_model
from engines.options import BuildOptions, Calibration, CompileOptions, PrecisionOptions
from engines.precision_rules import PrecisionRule
from engines.prepare import load_executable, prepare_model
from engines.registry import ENGINE_NAMES
from engines.stage_times import StageTime
from engines.trust import Trust
from engines.worker import Worker

__all__ = [
    "ENGINE_NAMES",
    "AccuracyBudget",
    "AlignedValue",
    "Alignment",
    "BuildOptions",
    "Calibration",
    "CompileOptions",
    "CompiledModel",
    "EngineCache",
    "EngineError",
    "Executable",
    "ExecutionError",
    "InvalidInputError",
    "ModelLoadError",
    "PrecisionOptions",
    "PrecisionRule",
    "StageTime",
    "Trust",
    "UnknownBackendError",
    "Worker",
    "align",
    "compile_model",
    "load_executable",
    "partition_model",
    "prepare_model",
]
