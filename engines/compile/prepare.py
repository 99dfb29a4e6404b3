"""Turns a model file into an executable: loads a compiled model, and compiles any other first."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.checksum import check_checksum
from trtnode.engines.artifact.compiled_model import REPORT, CompiledModel, embedded_report
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.registry import abilities_of, resolve_engine
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.compile.first_comparison import known_engines
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.compile.prepared import PreparedModel
from trtnode.engines.errors import EngineError, OutputFileError, ProcessStartError
from trtnode.engines.inputs.source import cleaned
from trtnode.engines.model_facts import ModelFacts
from trtnode.engines.runtime.executor import Executable, open_executable
from trtnode.engines.runtime.options import SHARED, RunOptions
from trtnode.engines.tuning.memory_plan import keeps_memory_pattern
from trtnode.engines.tuning.precision_stage import check_engine
from trtnode.partitioner.compiled.stripping import strip_engines, strip_fallback
from trtnode.partitioner.compiled.trtnode import is_compiled
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.external_data import take_data_inside
from trtnode.partitioner.model.loading import load_model, read_proto, view_model
from trtnode.partitioner.passes.clean_up import freeze_initializers
from trtnode.partitioner.passes.computed_sizes import check_computed_sizes
from trtnode.partitioner.passes.rewrites.apply import RewriteOptions, may_rewrite, would_rewrite

logger = logging.getLogger(__name__)


def load_executable(
    path: pathlib.Path,
    *,
    threads: int | None = None,
    shares_cores: bool = False,
    native: bool = False,
    trust: Trust | None = None,
    cache: EngineCache | None = None,
) -> Executable:
    """Load a model file as it is: its TrtNodes with their engines, everything else natively.

    Nodes that nothing else has a kernel for run in onnx.reference, in this process.

    Args:
        path: A compiled model, or any ONNX model.
        threads: Threads of each engine and session; None leaves it to the libraries.
        shares_cores: True if other models compute on the same cores.
        native: True runs every node natively, without engines.
        trust: Keys whose engines may run; None takes the defaults. Nodes of other engines run natively, with a warning.
        cache: Place of what is known here about engines that were built elsewhere; None keeps nothing.

    Raises:
        PartitionError: The file is no model.
        ModelLoadError: ONNX Runtime refuses the model.
    """
    model = _checked(path)
    return open_executable(
        model,
        path,
        folder=path.parent,
        use_engines=not native,
        run=RunOptions(
            threads=threads,
            shares_cores=shares_cores,
            memory_pattern=keeps_memory_pattern(_embedded_memory(model)),
            trust=trust or Trust(),
            known=known_engines(path, cache),
        ),
    )


def prepare_model(
    path: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache | None = None,
    run: RunOptions = SHARED,
) -> Executable:
    """Load a compiled model, or compile an ONNX model and load the result, without writing a file.

    Where the disk is too full to compile it, it runs natively, and the log says so.
    A compiled model with engines that may not run here is compiled again from the nodes that it keeps. Nothing is
    compiled for engines that could not run here.

    Args:
        path: The model.
        options: Options for a model that isn't compiled yet, or whose engines may not run here.
        cache: Place where engines are looked up and kept. Its trust says which engines of a compiled model may run.
        run: Options of the loaded model. Nodes run in onnx.reference only where ``options`` let them.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        EngineError: The model can't be compiled or loaded.
    """
    with custom_operators(options.custom_op_libraries):
        return _prepare(path, options, cache, run)[0]


def prepare_file(
    path: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache | None,
    folder: pathlib.Path | None,
    run: RunOptions = SHARED,
) -> PreparedModel:
    """Do as ``prepare_model`` and write the compiled file to a folder, after the executable has been open once.

    If all its engines run, the file lacks the nodes and weights that they replaced, which the source file has.
    Where there is no folder, or no room in it, all nodes are to run natively.

    Raises:
        PartitionError: As ``prepare_model``.
        EngineError: As ``prepare_model``.
    """
    with custom_operators(options.custom_op_libraries):
        executable, compiled = _prepare(path, options, cache, run)
    executable.close()
    facts = executable.facts
    waiting = facts.unchecked or facts.rejected  # such engines need the nodes that they replace
    if compiled is not None and facts.segments and not waiting:
        strip_fallback(compiled.model, keep_sizes=True)
    file = None if compiled is None or folder is None else _saved(compiled, folder / path.name)
    return PreparedModel(
        compiled=file,
        use_engines=resolve_engine(options.engine, options.build) != NATIVE,
        freeze=options.partition.freeze_initializers,
        rewritten=file is not None and compiled is not None and compiled.rewritten,
        memory_pattern=keeps_memory_pattern(facts.memory),
        facts=facts if file is not None else dataclasses.replace(facts, rejected=()),
    )


def _saved(compiled: CompiledModel, file: pathlib.Path) -> pathlib.Path | None:
    try:
        compiled.save(file, flush=False)
    except OutputFileError as error:
        logger.warning("%s runs natively, since its compiled form can't be written: %s", file.name, error)
        return None
    return file


def _prepare(
    path: pathlib.Path, options: CompileOptions, cache: EngineCache | None, run: RunOptions
) -> tuple[Executable, CompiledModel | None]:
    """Return the executable, and the model that was compiled for it, if it is used."""
    model = _checked(path)
    if options.partition.freeze_initializers:
        freeze_initializers(model)
    engine = resolve_engine(options.engine, options.build)
    check_engine(engine, options)
    idle = abilities_of(engine, options.build).idle
    # Only measurements depend on it; without them, the decisions of other compilations of the model stay valid.
    options = dataclasses.replace(options, threads=run.threads, shares_cores=run.shares_cores and options.measures)
    if options.reference is False:
        run = dataclasses.replace(run, reference=None)
    use_engines = engine != NATIVE
    if is_compiled(model):
        return _open_compiled(model, path, options, cache, run)
    if idle:
        logger.info("%s runs natively: engines of %s would be built but not run (%s)", path, engine, idle)
    compiled = _native(path, model, options) if idle or engine == NATIVE else _compile(path, options, cache)
    used = compiled if compiled is not None and _differs(compiled) else None
    facts = _compilation_facts(model, compiled, asked=options.precision)
    if compiled is None:
        facts = dataclasses.replace(facts, memory=_native_memory(path, options))
    run = dataclasses.replace(run, memory_pattern=keeps_memory_pattern(facts.memory))
    open_here = functools.partial(open_executable, use_engines=use_engines, run=run, compiled=facts)
    executable = _open_rewritten(used, path, open_here) if used and used.rewritten else None
    if executable is None:
        executable = open_here(view_model(used.model, path) if used else model, path, folder=path.parent)
    return executable, used


def _native_memory(path: pathlib.Path, options: CompileOptions) -> Mapping[str, Any] | None:
    """Plan the memory of a model that nothing compiles; None where its graph can't be read, or nothing be written."""
    try:
        return partition_model(path, dataclasses.replace(options, engine=NATIVE))[1].memory
    except (EngineError, PartitionError, OSError) as error:
        logger.info("%s: its memory isn't planned: %s", path, error)
        return None


def _differs(compiled: CompiledModel) -> bool:
    """Return whether a compiled model is another one than its source."""
    return compiled.engine != NATIVE or bool(compiled.reference_nodes) or compiled.rewritten


def _native(path: pathlib.Path, model: ir.Model, options: CompileOptions) -> CompiledModel | None:
    """Compile a model that runs natively where rewrites may make it faster; else None."""
    options = CompileOptions(
        engine=NATIVE,
        partition=options.partition,
        check_inputs=options.check_inputs,
        shapes=options.shapes,
        reference=options.reference,
        no_optimize=options.no_optimize,
    )
    rewriting = RewriteOptions(engine=NATIVE, without=options.rewrites_left_out)
    try:
        if not may_rewrite(model, rewriting) or not would_rewrite(cleaned(path, ()).model.graph, rewriting):
            return None
        compiled = _compile(path, options, None)
    except (EngineError, PartitionError) as error:
        logger.debug("%s runs natively as it is: %s", path, error)
        return None
    return compiled if compiled is not None and compiled.rewritten else None


def _open_rewritten(
    compiled: CompiledModel, path: pathlib.Path, open_here: Callable[..., Executable]
) -> Executable | None:
    """Open a model that runs natively in another form; None where there is no room to write it."""
    with TemporaryFolder() as folder:
        file = _saved(compiled, folder / path.name)
        if file is None:
            return None
        return open_here(load_model(file), file, folder=folder)


def _checked(path: pathlib.Path) -> ir.Model:
    """Load a model whose constants ONNX Runtime may compute."""
    model = load_model(path, check=check_checksum)
    check_computed_sizes(model, path)
    return model


def _open_compiled(
    model: ir.Model, path: pathlib.Path, options: CompileOptions, cache: EngineCache | None, run: RunOptions
) -> tuple[Executable, CompiledModel | None]:
    """Open a compiled model, with new engines where its own may not run here."""
    facts = _compilation_facts(model)
    run = dataclasses.replace(run, memory_pattern=keeps_memory_pattern(facts.memory))
    engine = resolve_engine(options.engine, options.build)
    open_model = functools.partial(open_executable, native=path, folder=path.parent, use_engines=engine != NATIVE)
    trust, known = cache.trust if cache else Trust(), known_engines(path, cache)
    executable = open_model(model, run=dataclasses.replace(run, trust=trust, known=known), compiled=facts)
    rejected, idle = executable.facts.rejected, abilities_of(engine, options.build).idle
    again = rejected and executable.facts.native_fallback and not idle
    compiled = _build_again(path, options, cache) if again else None
    if compiled is not None:
        executable.close()
        facts = dataclasses.replace(_compilation_facts(model, compiled), rejected=rejected)
        executable = open_model(view_model(compiled.model, path), run=run, compiled=facts)
    return executable, compiled


def _compilation_facts(model: ir.Model, compiled: CompiledModel | None = None, *, asked: str = "") -> ModelFacts:
    """Return the facts of a compilation; without one, those that a compiled file holds."""
    if compiled is None:
        return ModelFacts(precision_asked=asked, report=_report_in(model), memory=_embedded_memory(model))
    return ModelFacts(
        precision_asked=asked,
        engines_built=compiled.engines_built,
        report=compiled.report.as_json(),
        memory=compiled.report.memory,
    )


def _embedded_memory(model: ir.Model) -> Mapping[str, Any] | None:
    with contextlib.suppress(ValueError):
        return (embedded_report(model) or {}).get("memory")
    return None


def _report_in(model: ir.Model) -> dict[str, Any] | None:
    """Return the report in a compiled file; None where there is none, or one that was damaged."""
    try:
        return embedded_report(model)
    except ValueError as error:
        logger.warning("The report in the file (%s) is left out, as %s", REPORT, error)
        return None


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
            write_temporary(proto, source)
            compiled = compile_model(source, options, cache=cache)
    except (EngineError, PartitionError) as error:
        logger.warning("%s: they can't be built, so its nodes run natively: %s", path, error)
        return None
    return None if compiled.engine == NATIVE else compiled
