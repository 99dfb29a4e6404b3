"""From a model file to something that runs: loads what is compiled, compiles what isn't."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
from typing import Any

import onnx_ir as ir

from engines.cache import EngineCache
from engines.compiler import compile_model
from engines.errors import OutputFileError
from engines.executor import Executable, open_executable
from engines.options import CompileOptions
from engines.precision_choice import check_engine
from engines.registry import NATIVE, resolve_engine
from partitioner import is_compiled, load_model
from partitioner.loading import view_model

logger = logging.getLogger(__name__)


def load_executable(
    path: pathlib.Path, *, threads: int | None = None, shares_cores: bool = False, native: bool = False
) -> Executable:
    """Load a model file as it is: its TrtNodes with their engines, everything else natively.

    Args:
        path: A compiled model, or any ONNX model.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: Whether other models compute on the same cores.
        native: Whether to leave the engines alone and run every node natively.

    Raises:
        PartitionError: The file is no model.
        ModelLoadError: ONNX Runtime refuses the model.
    """
    return open_executable(
        load_model(path), path, folder=path.parent, threads=threads, shares_cores=shares_cores, use_engines=not native
    )


def prepare_model(
    path: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache | None = None,
    *,
    threads: int | None = None,
    shares_cores: bool = True,
) -> Executable:
    """Load a compiled model, or compile an ONNX model and load the result, without writing a file.

    Where the disk is too full to compile it, it runs natively, and the log says so.

    Args:
        path: The model.
        options: How to compile it, if it isn't compiled yet.
        cache: Where engines are looked up and kept.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: Whether other models compute on the same cores.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        EngineError: The model can't be compiled or loaded.
    """
    model = load_model(path)
    engine = resolve_engine(options.engine)
    check_engine(engine, options)
    built, report = 0, _embedded_report(model)
    is_compiled_file = is_compiled(model)
    if engine != NATIVE and not is_compiled_file:
        try:
            compiled = compile_model(path, dataclasses.replace(options, threads=threads), cache=cache)
        except OutputFileError as error:
            logger.warning("%s runs natively, since it can't be compiled: %s", path, error)
        else:
            built, report = compiled.engines_built, compiled.report.as_json()
            if compiled.engine != NATIVE:
                model = view_model(compiled.model, path)
    executable = open_executable(
        model, path, folder=path.parent, threads=threads, shares_cores=shares_cores, use_engines=engine != NATIVE
    )
    executable.description |= {"engines_built": built, "report": report}
    if not is_compiled_file:
        executable.description["precision"]["asked"] = options.precision.asked
    return executable


def _embedded_report(model: ir.Model) -> dict[str, Any] | None:
    """Return what a compiled file says about itself; None where there is nothing, or nothing that can be read."""
    try:
        report = json.loads(model.metadata_props.get("trtnode.report", ""))
    except ValueError:
        return None
    return report if isinstance(report, dict) else None
