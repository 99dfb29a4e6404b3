"""From a model file to something that runs: loads what is compiled, compiles what isn't."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import pathlib
import tempfile
from typing import Any

import onnx_ir as ir

from engines.cache import EngineCache
from engines.compiled_model import CompiledModel
from engines.compiler import compile_model
from engines.errors import EngineError, OutputFileError
from engines.executor import Executable, open_executable
from engines.files import write_model
from engines.options import CompileOptions
from engines.precision_choice import check_engine
from engines.registry import NATIVE, resolve_engine
from engines.trust import Trust
from partitioner import PartitionError, is_compiled, load_model, walk
from partitioner.external_data import take_data_inside
from partitioner.loading import read_proto, view_model
from partitioner.stripping import strip_engines

logger = logging.getLogger(__name__)


def load_executable(
    path: pathlib.Path,
    *,
    threads: int | None = None,
    shares_cores: bool = False,
    native: bool = False,
    trust: Trust | None = None,
) -> Executable:
    """Load a model file as it is: its TrtNodes with their engines, everything else natively.

    Args:
        path: A compiled model, or any ONNX model.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: Whether other models compute on the same cores.
        native: Whether to leave the engines alone and run every node natively.
        trust: Whose engines may run; None takes the defaults. The nodes of others run natively, with a warning.

    Raises:
        PartitionError: The file is no model.
        ModelLoadError: ONNX Runtime refuses the model.
    """
    return open_executable(
        load_model(path),
        path,
        folder=path.parent,
        threads=threads,
        shares_cores=shares_cores,
        use_engines=not native,
        trust=trust or Trust(),
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
    A compiled model with engines that may not run here is compiled again from the nodes that it keeps.

    Args:
        path: The model.
        options: How to compile it, if it isn't compiled yet, or its engines may not run here.
        cache: Where engines are looked up and kept; it says whose engines of a compiled model may run.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: Whether other models compute on the same cores.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        EngineError: The model can't be compiled or loaded.
    """
    model = load_model(path)
    engine = resolve_engine(options.engine)
    check_engine(engine, options)
    # Only tuning heeds it; without, what other compilations have found about the model stays valid.
    options = dataclasses.replace(options, threads=threads, shares_cores=shares_cores and options.tune)
    opened = functools.partial(
        open_executable,
        native=path,
        folder=path.parent,
        threads=threads,
        shares_cores=shares_cores,
        use_engines=engine != NATIVE,
    )
    built, report = 0, _embedded_report(model)
    if is_compiled(model):
        executable = opened(model, trust=cache.trust if cache else Trust())
        rejected, has_nodes = executable.description["rejected"], executable.description["native_fallback"]
        if rejected and has_nodes and (compiled := _build_again(path, options, cache)) is not None:
            executable.close()
            executable = opened(view_model(compiled.model, path))
            built, report = compiled.engines_built, compiled.report.as_json()
            executable.description["rejected"] = rejected
    else:
        compiled = _compile(path, options, cache) if engine != NATIVE else None
        if compiled is not None:
            built, report = compiled.engines_built, compiled.report.as_json()
            model = view_model(compiled.model, path) if compiled.engine != NATIVE else model
        executable = opened(model)
        executable.description["precision"]["asked"] = options.precision.asked
    executable.description |= {"engines_built": built, "report": report}
    return executable


def _compile(path: pathlib.Path, options: CompileOptions, cache: EngineCache | None) -> CompiledModel | None:
    """Compile a model; None where the disk is too full for that."""
    try:
        return compile_model(path, options, cache=cache)
    except OutputFileError as error:
        logger.warning("%s runs natively, since it can't be compiled: %s", path, error)
        return None


def _build_again(path: pathlib.Path, options: CompileOptions, cache: EngineCache | None) -> CompiledModel | None:
    """Compile the nodes of a compiled model whose engines may not run here; None where that gives no engine."""
    logger.warning("%s: its engines are built again on this machine, as the configuration says", path)
    try:
        with tempfile.TemporaryDirectory(prefix="trtnode-") as folder:
            source = pathlib.Path(folder) / path.name
            proto = read_proto(path)
            take_data_inside(path, walk.tensors(proto))
            strip_engines(proto)
            write_model(proto, source)
            compiled = compile_model(source, options, cache=cache)
    except (EngineError, PartitionError) as error:
        logger.warning("%s: they can't be built, so its nodes run natively: %s", path, error)
        return None
    return None if compiled.engine == NATIVE else compiled


def _embedded_report(model: ir.Model) -> dict[str, Any] | None:
    """Return what a compiled file says about itself; None where there is nothing, or nothing that can be read."""
    try:
        report = json.loads(model.metadata_props.get("trtnode.report", ""))
    except ValueError:
        return None
    return report if isinstance(report, dict) else None
