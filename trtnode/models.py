"""Models in this process: what would run where, engines built and embedded, and answers."""

from __future__ import annotations

import os
import pathlib

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.cache_folder import default_cache_folder
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.compile.prepare import load_executable
from trtnode.engines.precision.options import Calibration, PrecisionOptions
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.cut.report import Report
from trtnode.serving.cli.option_values import CACHE_BYTES

Path = str | os.PathLike[str]


def explain(model: Path, *, engine: str = "auto", options: CompileOptions | None = None) -> Report:
    """Tell which nodes of an ONNX file an engine would take, and why not the others. Builds nothing.

    Args:
        model: The file.
        engine: ``auto``, ``openvino``, ``tensorrt``, ``tensorrt-rtx`` or ``native``.
        options: Everything else, in place of ``engine``.

    Raises:
        PartitionError: The file is no model.
        EngineError: There is no such engine, or its library isn't installed.
    """
    _, report = partition_model(pathlib.Path(model), options or CompileOptions(engine=engine), cache=_cache())
    return report


def compile(  # noqa: A001  (it is what the command is called)
    model: Path,
    output: Path | None = None,
    *,
    engine: str = "auto",
    precision: str = "fp32",
    calibration: str | None = None,
    tune: bool = False,
    options: CompileOptions | None = None,
) -> CompiledModel:
    """Build engines for an ONNX file, or take them from the cache, and embed them in it.

    Args:
        model: The file.
        output: Where to write the compiled file; None leaves that to ``CompiledModel.save``.
        engine: As of ``explain``.
        precision: ``fp32``, ``fp16``, ``bf16``, ``int8``, ``fp8``, ``int4``, or ``auto`` for the fastest that keeps the
            accuracy budget.
        calibration: For ``int8`` and ``fp8``: samples of the inputs, or a table that ``trtnode calibrate`` wrote.
        tune: True measures here, and keeps an engine only where the model is faster with it.
        options: Everything there is to decide, in place of the four above.

    Raises:
        PartitionError: The file is no model.
        EngineError: It can't be compiled as asked, or the result can't be written.
    """
    if options is None:
        asked = PrecisionOptions(asked=precision, calibration=Calibration.of(calibration))
        options = CompileOptions(engine=engine, precision=asked, tune=tune)
    compiled = compile_model(pathlib.Path(model), options, cache=_cache())
    if output is not None:
        compiled.save(pathlib.Path(output))
    return compiled


def load(model: Path, *, native: bool = False, threads: int | None = None, trust: Trust | None = None) -> Executable:
    """Load a compiled file, or any ONNX file, to run it in this process.

    Args:
        model: The file.
        native: True leaves its engines alone.
        threads: Threads of each engine and session; None leaves it to the libraries.
        trust: Keys whose engines may run; None trusts engines of OpenVINO, and those that were built here.

    Raises:
        PartitionError: The file is no model.
        EngineError: ONNX Runtime refuses it.
    """
    return load_executable(pathlib.Path(model), native=native, threads=threads, trust=trust, cache=_cache())


def _cache() -> EngineCache:
    return EngineCache(default_cache_folder(), CACHE_BYTES)
