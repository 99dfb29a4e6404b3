"""Turns a model file into an executable: loads a compiled model, and compiles any other first."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import pathlib
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from engines.artifact.cache import EngineCache
from engines.artifact.compiled_model import CompiledModel
from engines.artifact.files import write_model
from engines.artifact.temporary_folder import TemporaryFolder
from engines.artifact.trust import Trust
from engines.backends.names import NATIVE
from engines.backends.registry import only_builds_reason, resolve_engine
from engines.build.options import CompileOptions
from engines.compile.compiler import compile_model
from engines.errors import EngineError, OutputFileError, ProcessStartError
from engines.runtime.executor import Executable, open_executable
from engines.tuning.precision_stage import check_engine
from partitioner import PartitionError, is_compiled, load_model
from partitioner.compiled.stripping import strip_engines
from partitioner.model import protobuf_walk
from partitioner.model.external_data import take_data_inside
from partitioner.model.loading import read_proto, view_model

logger = logging.getLogger(__name__)

OpenModel = Callable[..., Executable]
"""``open_executable`` with the arguments that are the same for each form of a model."""


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
        shares_cores: True if other models compute on the same cores.
        native: True runs every node natively, without engines.
        trust: Keys whose engines may run; None takes the defaults. Nodes of other engines run natively, with a warning.

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
    A compiled model with engines that may not run here is compiled again from the nodes that it keeps. Nothing is
    compiled for engines that could not run here.

    Args:
        path: The model.
        options: Options for a model that isn't compiled yet, or whose engines may not run here.
        cache: Place where engines are looked up and kept. Its trust says which engines of a compiled model may run.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: True if other models compute on the same cores.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        EngineError: The model can't be compiled or loaded.
    """
    model = load_model(path)
    engine = resolve_engine(options.engine, options.build)
    check_engine(engine, options)
    idle = only_builds_reason(engine, options.build)
    # Only tuning depends on it; without tuning, the decisions of other compilations of the model stay valid.
    options = dataclasses.replace(options, threads=threads, shares_cores=shares_cores and options.tune)
    open_model = functools.partial(
        open_executable,
        native=path,
        folder=path.parent,
        threads=threads,
        shares_cores=shares_cores,
        use_engines=engine != NATIVE,
    )
    if is_compiled(model):
        return _open_compiled(model, path, options, cache, open_model)
    if idle:
        logger.info("%s runs natively: engines of %s would be built but not run (%s)", path, engine, idle)
    compiled = _compile(path, options, cache) if engine != NATIVE and not idle else None
    has_engines = compiled is not None and compiled.engine != NATIVE
    executable = open_model(view_model(compiled.model, path) if compiled and has_engines else model)
    executable.description["precision"]["asked"] = options.precision.asked
    return _described(executable, model, compiled)


def _open_compiled(
    model: ir.Model, path: pathlib.Path, options: CompileOptions, cache: EngineCache | None, open_model: OpenModel
) -> Executable:
    """Open a compiled model, with new engines where its own may not run here."""
    executable = open_model(model, trust=cache.trust if cache else Trust())
    rejected, has_nodes = executable.description["rejected"], executable.description["native_fallback"]
    idle = only_builds_reason(resolve_engine(options.engine, options.build), options.build)
    compiled = _build_again(path, options, cache) if rejected and has_nodes and not idle else None
    if compiled is not None:
        executable.close()
        executable = open_model(view_model(compiled.model, path))
        executable.description["rejected"] = rejected
    return _described(executable, model, compiled)


def _described(executable: Executable, model: ir.Model, compiled: CompiledModel | None) -> Executable:
    """Add the engines built now, if any, and the report to an executable's description."""
    built = 0 if compiled is None else compiled.engines_built
    report = _embedded_report(model) if compiled is None else compiled.report.as_json()
    executable.description |= {"engines_built": built, "report": report}
    return executable


def _compile(path: pathlib.Path, options: CompileOptions, cache: EngineCache | None) -> CompiledModel | None:
    """Compile a model; None where the disk is too full for that, or no process can be started."""
    try:
        return compile_model(path, options, cache=cache)
    except (OutputFileError, ProcessStartError) as error:
        logger.warning("%s runs natively, since it can't be compiled: %s", path, error)
        return None


def _build_again(path: pathlib.Path, options: CompileOptions, cache: EngineCache | None) -> CompiledModel | None:
    """Compile the nodes of a compiled model whose engines may not run here; None where that gives no engine."""
    logger.warning("%s: its engines are built again on this machine, as the configuration says", path)
    try:
        with TemporaryFolder() as folder:
            source = folder / path.name
            proto = read_proto(path)
            take_data_inside(path, protobuf_walk.tensors(proto))
            strip_engines(proto)
            write_model(proto, source)
            compiled = compile_model(source, options, cache=cache)
    except (EngineError, PartitionError) as error:
        logger.warning("%s: they can't be built, so its nodes run natively: %s", path, error)
        return None
    return None if compiled.engine == NATIVE else compiled


def _embedded_report(model: ir.Model) -> dict[str, Any] | None:
    """Return the report in a compiled file; None where there is none, or none that can be read."""
    try:
        report = json.loads(model.metadata_props.get("trtnode.report", ""))
    except ValueError:
        return None
    return report if isinstance(report, dict) else None
