"""Compiles an ONNX file: checked engines for the nodes that a library takes, and a native form of all nodes."""

from __future__ import annotations

import dataclasses
import functools
import logging
import pathlib

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.registry import abilities_of, warn_of_idle_options, with_next_engine
from trtnode.engines.build.context import TIMEOUT_S, CompileContext, open_context
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compilation import Compilation
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.compile.embedding import without_engines
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.compile.sparse_choice import with_faster_zeros
from trtnode.engines.errors import BackendMissingError, ModelLoadError, NotRunHereError, OutputFileError
from trtnode.engines.onnxruntime.compatibility import write_native_form
from trtnode.engines.tuning.measuring_turn import compiling
from trtnode.engines.tuning.precision_stage import check_engine
from trtnode.partitioner.errors import ModelFileError

logger = logging.getLogger(__name__)


def compile_model(
    source: pathlib.Path,
    options: CompileOptions,
    *,
    cache: EngineCache | None = None,
    worker: SubprocessWorker | None = None,
) -> CompiledModel:
    """Compile an ONNX file.

    Args:
        source: The model.
        options: Options of the compilation.
        cache: Place where engines are looked up and kept.
        worker: Child process to build and check in; None makes a temporary one.

    Returns:
        The compiled model. Segments run natively if they can't be built, or if their engine computes something else
        than native execution; the report says why. A model that ONNX Runtime refuses is compiled in its native form.
        Where it has none, the nodes that ONNX Runtime lacks run in engines or, if ``options`` let them, in
        onnx.reference. If that lacks them too, engines make a model without a native fallback.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        ModelLoadError: ONNX Runtime refuses the model, and its native form as well.
        ReferenceNeededError: Only onnx.reference runs some nodes, and ``options`` don't let it.
        UnknownBackendError: There is no such engine.
        BackendMissingError: Its library is not installed, or does not run here.
        NotRunHereError: Engines are to be measured or judged, and are only built here.
        InvalidInputError: The model does not run on the inputs that ``options.check_inputs`` gives.
        PrecisionError: The engine lacks a precision, or ``int8`` is asked for without calibration.
        InputShapesError: Shapes to build for don't fit the model.
        OutputFileError: The folder for temporary files is full.
    """
    run = functools.partial(_compile_with, source, options, cache, worker)
    with custom_operators(options.custom_op_libraries):
        return with_next_engine(options.engine, run, options.build)


def _compile_with(
    source: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache | None,
    worker: SubprocessWorker | None,
    engine: str,
) -> CompiledModel:
    _check_library(engine, options)
    try:
        folder = None if cache is None else cache.directory
        with open_context(engine, source, options, cache, worker) as context, compiling(folder):
            return with_faster_zeros(context, _compile_in_some_form(context), _compile_in_some_form)
    except OSError as error:
        place, reason = pathlib.Path(error.filename or "the folder for temporary files"), error.strerror or str(error)
        if place == source:
            raise ModelFileError(source, f"can't be read ({reason}).", "Check the path and its permissions.") from error
        raise OutputFileError(place, reason) from error


def _check_library(engine: str, options: CompileOptions) -> None:
    """Refuse options that the engine's library can't meet, before anything else is done.

    Raises:
        BackendMissingError: It is not installed, or does not run here.
        NotRunHereError: Its engines would have to run here.
        PrecisionError: It lacks a precision.
    """
    warn_of_idle_options(engine, options.build)
    found = abilities_of(engine, options.build)
    if found.missing:
        raise BackendMissingError(found.missing)
    if found.idle and options.precision == "auto":
        raise NotRunHereError("--precision auto", engine, found.idle)
    check_engine(engine, options)


def _compile_in_some_form(context: CompileContext) -> CompiledModel:
    """Compile the model as it is. Where ONNX Runtime refuses it, compile its native form.

    A model without a native form is compiled for engines, with onnx.reference where that has what ONNX Runtime lacks.
    """
    try:
        return _compile(context)
    except ModelLoadError:
        source, rewritten = context.source, context.folder / "native.onnx"
        if context.worker.call(write_native_form, TIMEOUT_S, source.path, rewritten):
            return _compile(dataclasses.replace(context, source=dataclasses.replace(source, path=rewritten)))
        if context.unchecked:  # nothing here could run the model, so nothing could judge its engines
            raise
        compiled = _compile(dataclasses.replace(context, source=dataclasses.replace(source, runs_natively=False)))
        if not compiled.native_fallback:
            logger.warning("ONNX Runtime refuses this model, so its engines have no native fallback")
        return compiled


def _compile(context: CompileContext) -> CompiledModel:
    if context.engine != NATIVE:
        return Compilation(context).run()
    partition, _ = partition_model(context.source.path, context.options, worker=context.worker)
    return without_engines(context, partition, built_now=0)
