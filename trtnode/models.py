"""Models in this process: what would run where, engines built and embedded, and answers."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.cache_folder import default_cache_folder
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.progress import Progress, listening
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.custom_operators import custom_operators
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.inputs.sequences import read_states
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.explanation import Explanation
from trtnode.partitioner.options import each_option, made_of
from trtnode.serving.cli.option_values import CACHE_BYTES

Path = str | os.PathLike[str]


def explain(model: Path, *, options: CompileOptions | None = None, **named: Any) -> Explanation:
    """Tell which nodes of an ONNX file an engine would take, and why not the others. Builds nothing.

    Args:
        model: The file.
        options: The options of the compilation.
        named: The same by name, as flags of `trtnode explain`: ``engine="openvino"``, ``native_ops=["Softmax"]``.

    Returns:
        A report. ``print`` writes it in ten lines at most, and a notebook shows it as a picture of the graph.

    Raises:
        PartitionError: The file is no model, or an option can't be used.
        EngineError: The library of the engine isn't installed.

    Example:
        >>> import trtnode
        >>> report = trtnode.explain("model.onnx", engine="openvino", native_ops=["Softmax"])
        >>> report
        <Explanation of model.onnx: 1 segment for openvino, 1 native node>
        >>> [(node.op_type, node.code) for node in report.native]
        [('Softmax', 'USER_EXCLUDED')]
    """
    partition, report = partition_model(pathlib.Path(model), options or made_of(CompileOptions, named), cache=_cache())
    return Explanation.of(report, partition)


def compile(  # noqa: A001  (it is what the command is called)
    model: Path,
    output: Path | None = None,
    *,
    options: CompileOptions | None = None,
    progress: Callable[[Progress], object] | None = None,
    **named: Any,
) -> CompiledModel:
    """Build engines for an ONNX file, or take them from the cache, and embed those that make it faster here.

    Without options, engines compute in float32 and stay if a measurement of up to 10 s finds them faster. Other
    precisions stay inside an accuracy budget. Each engine is compared with ONNX Runtime before it is kept.

    Args:
        model: The file.
        output: Where to write the compiled file; None leaves that to ``CompiledModel.save``.
        options: The options of the compilation.
        progress: Called with each step of the work: a phase, and how many of its steps are done. Of compilations at the
            same time in this process, the one that began last is told of all.
        named: The options by name, as flags of `trtnode compile`: ``precision="int8", calibration="samples.npz"``.

    Returns:
        The model with its engines. Its ``report`` says what runs where, why, and what was measured.

    Raises:
        PartitionError: The file is no model, or an option can't be used.
        EngineError: It can't be compiled as asked, or the result can't be written.

    Example:
        >>> import trtnode
        >>> phases = []
        >>> compiled = trtnode.compile(
        ...     "model.onnx", "compiled.onnx", all_engines=True, progress=lambda step: phases.append(step.phase)
        ... )
        >>> compiled
        <CompiledModel of model.onnx: 1 engine of openvino in fp32, 0 native nodes>
        >>> list(dict.fromkeys(phases))
        ['Building', 'Comparing with native execution']
    """
    chosen = options or made_of(CompileOptions, named)
    with contextlib.nullcontext() if progress is None else listening(progress):
        compiled = compile_model(pathlib.Path(model), chosen, cache=_cache())
    compiled = dataclasses.replace(compiled, report=Explanation.of(compiled.report))
    if output is not None:
        compiled.save(pathlib.Path(output))
    return compiled


def load(
    model: Path,
    *,
    native: bool = False,
    threads: int | None = None,
    trust: Trust | None = None,
    custom_op_library: Sequence[Path] = (),
    state: str | Sequence[Mapping[str, Any]] | None = None,
    append: Sequence[str] = (),
) -> Executable:
    """Load a compiled file, or any ONNX file, to run it in this process.

    Args:
        model: The file.
        native: True leaves its engines alone.
        threads: Threads of each engine and session; None leaves it to the libraries.
        trust: Keys whose engines may run; None trusts engines of OpenVINO, and those that were built here.
        custom_op_library: Libraries of custom operators, or ``onnxruntime-extensions``.
        state: Outputs that are inputs of the next run, which ``sequence()`` of the result keeps: ``auto`` finds them by
            their names, else a mapping for each, such as ``{"input": "h0", "output": "hn"}``.
        append: Inputs that get what all runs of a sequence were given, joined in the last axis: a decoder's mask.

    Returns:
        The model, ready for ``run``, which takes arrays by input name and gives arrays by output name. Several threads
        may call it at the same time. An engine that doesn't fit this machine gives way to native execution.

    Raises:
        PartitionError: The file is no model.
        EngineError: ONNX Runtime refuses it, or the state doesn't fit it.

    Example:
        >>> import numpy as np, trtnode
        >>> model = trtnode.load("model.onnx")
        >>> model
        <Executable model.onnx: 13 native nodes; image float32[batch, 1, 8, 8] -> probabilities float32[batch, 10]>
        >>> model.run({"image": np.zeros((2, 1, 8, 8), np.float32)})["probabilities"].shape
        (2, 10)
    """
    with custom_operators(map(pathlib.Path, custom_op_library)):
        run = RunOptions(threads=threads, trust=trust)
        executable = open_model(pathlib.Path(model), _cache(), run, use_engines=not native)
    if state is not None:
        executable.keep(read_states(state, executable.inputs, executable.outputs, append))
    return executable


def _cache() -> EngineCache:
    return EngineCache(default_cache_folder(), CACHE_BYTES)


def _with_options(function: Callable[..., Any]) -> None:
    """Name every option of a compilation in the signature of a function that takes them."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    named = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.hint)
        for _, one in each_option(CompileOptions)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]


_with_options(explain)
_with_options(compile)
