"""Runs ONNX models at engine speed, from Python: explain, compile, load and serve.

A name is imported on first use, so that ``import trtnode`` costs no library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trtnode.engines.artifact.cache import EngineCache
    from trtnode.engines.artifact.compiled_model import CompiledModel
    from trtnode.engines.artifact.trust import Trust
    from trtnode.engines.backends.build_options import BuildOptions
    from trtnode.engines.backends.progress import Progress
    from trtnode.engines.build.options import CompileOptions
    from trtnode.engines.errors import EngineError
    from trtnode.engines.precision.options import AccuracyBudget, Calibration, PrecisionOptions
    from trtnode.engines.runtime.executor import Executable
    from trtnode.explanation import Explanation
    from trtnode.models import compile, explain, load  # noqa: A004
    from trtnode.partitioner.cut.options import PartitionOptions
    from trtnode.partitioner.cut.report import Report
    from trtnode.partitioner.errors import PartitionError
    from trtnode.server import RunningServer, serve
    from trtnode.serving.errors import ServingError
    from trtnode.version import __version__

_HOMES = {
    "AccuracyBudget": "engines.precision.options",
    "BuildOptions": "engines.backends.build_options",
    "Calibration": "engines.precision.options",
    "CompileOptions": "engines.build.options",
    "CompiledModel": "engines.artifact.compiled_model",
    "EngineCache": "engines.artifact.cache",
    "EngineError": "engines.errors",
    "Executable": "engines.runtime.executor",
    "Explanation": "explanation",
    "PartitionError": "partitioner.errors",
    "PartitionOptions": "partitioner.cut.options",
    "PrecisionOptions": "engines.precision.options",
    "Progress": "engines.backends.progress",
    "Report": "partitioner.cut.report",
    "RunningServer": "server",
    "ServingError": "serving.errors",
    "Trust": "engines.artifact.trust",
    "__version__": "version",
    "compile": "models",
    "explain": "models",
    "load": "models",
    "serve": "server",
}
"""The module of each public name."""

__all__ = [
    "AccuracyBudget",
    "BuildOptions",
    "Calibration",
    "CompileOptions",
    "CompiledModel",
    "EngineCache",
    "EngineError",
    "Executable",
    "Explanation",
    "PartitionError",
    "PartitionOptions",
    "PrecisionOptions",
    "Progress",
    "Report",
    "RunningServer",
    "ServingError",
    "Trust",
    "__version__",
    "compile",
    "explain",
    "load",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
