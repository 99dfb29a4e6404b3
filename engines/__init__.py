"""From segments to answers: backends, the compiler, the engine cache and the hybrid executor.

A public name is imported on first use, so that a light module such as ``engines.backends.names`` costs no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import partitioner.lazy_names  # its package comes before anything imports onnx_ir

if TYPE_CHECKING:
    from engines.artifact.cache import EngineCache
    from engines.artifact.compiled_model import CompiledModel
    from engines.artifact.trust import Trust
    from engines.backends.build_options import BuildOptions
    from engines.backends.names import ENGINE_NAMES
    from engines.backends.stage_times import StageTime
    from engines.build.options import CompileOptions
    from engines.build.subprocess_worker import SubprocessWorker as Worker
    from engines.compile.compiler import compile_model
    from engines.compile.partitioning import partition_model
    from engines.compile.prepare import load_executable, prepare_model
    from engines.diagnostics.alignment import AlignedValue, Alignment, align
    from engines.errors import (
        EngineError,
        ExecutionError,
        InvalidInputError,
        ModelLoadError,
        UnknownBackendError,
    )
    from engines.precision.accuracy_budget import AccuracyBudget
    from engines.precision.options import Calibration, PrecisionOptions
    from engines.precision.rules import PrecisionRule
    from engines.runtime.executor import Executable

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

_HOMES = {
    "ENGINE_NAMES": "engines.backends.names:ENGINE_NAMES",
    "AccuracyBudget": "engines.precision.accuracy_budget:AccuracyBudget",
    "AlignedValue": "engines.diagnostics.alignment:AlignedValue",
    "Alignment": "engines.diagnostics.alignment:Alignment",
    "BuildOptions": "engines.backends.build_options:BuildOptions",
    "Calibration": "engines.precision.options:Calibration",
    "CompileOptions": "engines.build.options:CompileOptions",
    "CompiledModel": "engines.artifact.compiled_model:CompiledModel",
    "EngineCache": "engines.artifact.cache:EngineCache",
    "EngineError": "engines.errors:EngineError",
    "Executable": "engines.runtime.executor:Executable",
    "ExecutionError": "engines.errors:ExecutionError",
    "InvalidInputError": "engines.errors:InvalidInputError",
    "ModelLoadError": "engines.errors:ModelLoadError",
    "PrecisionOptions": "engines.precision.options:PrecisionOptions",
    "PrecisionRule": "engines.precision.rules:PrecisionRule",
    "StageTime": "engines.backends.stage_times:StageTime",
    "Trust": "engines.artifact.trust:Trust",
    "UnknownBackendError": "engines.errors:UnknownBackendError",
    "Worker": "engines.build.subprocess_worker:SubprocessWorker",
    "align": "engines.diagnostics.alignment:align",
    "compile_model": "engines.compile.compiler:compile_model",
    "load_executable": "engines.compile.prepare:load_executable",
    "partition_model": "engines.compile.partitioning:partition_model",
    "prepare_model": "engines.compile.prepare:prepare_model",
}
"""The module and the name there of each public name."""

__getattr__, __dir__ = partitioner.lazy_names.names_on_first_use(__name__, _HOMES)
