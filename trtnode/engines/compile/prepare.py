"""Compiles a model for this machine, where that makes it faster, for ``open_model`` in this or another process."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Callable, Sequence

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.backends.registry import abilities_of, resolve_engine
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.compile.opening import AS_IT_IS, PreparedModel, load_checked, open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.errors import EngineError, OutputFileError, SystemLimitError
from trtnode.engines.model_facts import ModelFacts
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import SHARED, RunOptions
from trtnode.engines.tuning.precision_stage import check_engine
from trtnode.partitioner.compiled.stripping import strip_engines, strip_fallback
from trtnode.partitioner.compiled.trtnode import is_compiled
from trtnode.partitioner.cut.labels import PASSING
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.external_data import take_data_inside
from trtnode.partitioner.model.loading import read_proto

logger = logging.getLogger(__name__)

TryOut = Callable[[Executable], None]
"""Runs a model for the first time."""


def prepare_model(
    path: pathlib.Path,
    options: CompileOptions,
    cache: EngineCache | None,
    folder: pathlib.Path | None,
    try_out: TryOut | None = None,
) -> PreparedModel:
    """Compile a model for this machine.

    A compiled file stays as it is, unless some of its engines may not run here: it is then compiled again from the
    nodes that it keeps. Nothing is compiled for engines that could not run here. No file is written where the model's
    own gives the same, since it would only be a copy of the weights. Where the disk is too full, all nodes run
    natively, and the log says so.

    Args:
        path: The model.
        options: The options of the compilation.
        cache: Place where engines are looked up and kept. Its trust says which engines of a compiled file may run.
        folder: Place of the compiled file, which lacks the nodes and weights that checked engines replace: the model's
            own file has them. None where there is none; all nodes then run natively.
        try_out: Gets the model, opened as it will run. None opens none but a compiled file.

    Raises:
        PartitionError: The file is no model, or an option doesn't fit it.
        EngineError: The model can't be compiled or opened, or fails in ``try_out``.
    """
    with custom_operators(options.custom_op_libraries):
        engine = resolve_engine(options.engine, options.build)
        check_engine(engine, options)
        preparation = _Preparation(path=path, options=options, cache=cache, target=folder and folder / path.name)
        idle = abilities_of(engine, options.build).idle
        builds = engine != NATIVE and not idle
        if is_compiled(load_checked(path)):
            found = preparation.open_once(AS_IT_IS, try_out)
            again = builds and found.rejected and found.native_fallback
            prepared = preparation.build_again(found.rejected) if again else None
            if prepared is None:
                return AS_IT_IS
        else:
            if idle:
                logger.info("%s runs natively: engines of %s would be built but not run (%s)", path, engine, idle)
            prepared = preparation.build() if builds else preparation.natively()
        if try_out is not None:
            preparation.open_once(prepared, try_out)
        return prepared


def run_options(options: CompileOptions) -> RunOptions:
    """Return how a model runs beside others that was prepared with these options."""
    return dataclasses.replace(
        SHARED,
        threads=options.threads,
        frozen=options.partition.freeze_initializers,
        reference=None if options.reference is False else SHARED.reference,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Preparation:
    """Arguments of ``prepare_model``; ``target`` is the compiled file."""

    path: pathlib.Path
    options: CompileOptions
    cache: EngineCache | None
    target: pathlib.Path | None

    def open_once(self, prepared: PreparedModel, try_out: TryOut | None) -> ModelFacts:
        run, use_engines = run_options(self.options), self.options.engine != NATIVE
        executable = open_model(self.path, self.cache, run, use_engines=use_engines, prepared=prepared)
        with contextlib.closing(executable):
            if try_out is not None:
                try_out(executable)
            return executable.facts

    def build(self) -> PreparedModel:
        """Compile the model; for native execution alone where the system lacks something, such as room on the disk."""
        try:
            return self._written(compile_model(self.path, self.options, cache=self.cache))
        except (OutputFileError, SystemLimitError) as error:
            logger.warning("%s runs natively, since it can't be compiled: %s", self.path, error)
            return dataclasses.replace(self.natively(), lasting=False)

    def natively(self) -> PreparedModel:
        """Rewrite a model that runs natively where that makes it faster, and plan its memory."""
        names = ("partition", "check_inputs", "shapes", "reference", "no_optimize", "declared_sizes")
        options = CompileOptions(engine=NATIVE, **{name: getattr(self.options, name) for name in names})
        memory = None
        try:
            report = partition_model(self.path, options)[1]
            memory = report.memory
            compiled = compile_model(self.path, options) if report.rewrites else None
            if compiled is not None and compiled.rewritten:
                return self._written(compiled)
        except (EngineError, PartitionError, OSError) as error:
            logger.info("%s runs natively as it is: %s", self.path, error)
        return PreparedModel(facts=ModelFacts(precision_asked=self.options.precision, memory=memory))

    def build_again(self, rejected: Sequence[str]) -> PreparedModel | None:
        """Compile the nodes of a compiled model whose engines may not run here; None where that gives no engine."""
        logger.warning("%s: its engines are built again on this machine, as the configuration says", self.path)
        try:
            with TemporaryFolder() as folder:
                source = folder / self.path.name
                proto = read_proto(self.path)
                take_data_inside(self.path, protobuf_walk.tensors(proto))
                strip_engines(proto)
                write_temporary(proto, source)
                compiled = compile_model(source, self.options, cache=self.cache)
                return None if compiled.engine == NATIVE else self._written(compiled, rejected)
        except (EngineError, PartitionError) as error:
            logger.warning("%s: they can't be built, so its nodes run natively: %s", self.path, error)
            return None

    def _written(self, compiled: CompiledModel, rejected: Sequence[str] = ()) -> PreparedModel:
        """Write a compiled model, unless it runs as its source does."""
        facts = ModelFacts(
            precision_asked=self.options.precision,
            engines_built=compiled.engines_built,
            report=compiled.report.as_json(),
            memory=compiled.report.memory,
            rejected=rejected,
        )
        has_engines = compiled.engine != NATIVE
        lasting = all(native.code not in PASSING for native in compiled.report.native)
        if self.target is None or not (has_engines or compiled.reference_nodes or compiled.rewritten):
            return PreparedModel(facts=facts, lasting=lasting and self.target is not None)
        if has_engines and not compiled.report.unchecked:
            strip_fallback(compiled.model, keep_sizes=True)
        try:
            compiled.save(self.target, flush=False)
        except OutputFileError as error:
            logger.warning("%s runs natively, since its compiled form can't be written: %s", self.path.name, error)
            return PreparedModel(facts=facts, lasting=False)
        return PreparedModel(compiled=self.target, facts=facts, lasting=lasting)
