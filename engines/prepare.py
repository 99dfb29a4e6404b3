"""From a model file to something that runs: loads what is compiled, compiles what isn't."""

from __future__ import annotations

import dataclasses
import logging
import pathlib

from engines.cache import EngineCache
from engines.compiler import compile_model
from engines.executor import Executable, open_executable
from engines.options import CompileOptions
from engines.precision_choice import check_engine
from engines.registry import NATIVE, resolve_engine
from engines.trust import Trust
from partitioner import is_compiled, load_model
from partitioner.loading import view_model

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

    Args:
        path: The model.
        options: How to compile it, if it isn't compiled yet.
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
    built = 0
    is_compiled_file = is_compiled(model)
    if engine != NATIVE and not is_compiled_file:
        compiled = compile_model(path, dataclasses.replace(options, threads=threads), cache=cache)
        built = compiled.engines_built
        if compiled.engine != NATIVE:
            model = view_model(compiled.model, path)
    trust = cache.trust if cache else Trust()
    executable = open_executable(
        model,
        path,
        folder=path.parent,
        threads=threads,
        shares_cores=shares_cores,
        use_engines=engine != NATIVE,
        trust=trust if is_compiled_file else None,
    )
    executable.description["engines_built"] = built
    if not is_compiled_file:
        executable.description["precision"]["asked"] = options.precision.asked
    return executable
