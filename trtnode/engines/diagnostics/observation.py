"""Runs models so that the values between their nodes can be seen."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.build.tolerance import accumulates_quantized
from trtnode.engines.errors import EngineError, ExecutionError
from trtnode.engines.onnxruntime.session import NativeSession, open_observed
from trtnode.engines.runtime.executor import open_executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.compiled.trtnode import is_compiled
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model

Values = Mapping[str, np.ndarray]
"""Arrays by value name."""


def run_natively(
    path: pathlib.Path, names: Collection[str], feeds: Values, folder: pathlib.Path
) -> tuple[Values, Sequence[Values]]:
    """Run a model in ONNX Runtime and return its values of some names, without names that it lacks.

    Args:
        path: A model that isn't compiled.
        names: Of values.
        feeds: An array for each input.
        folder: For files.

    Returns:
        The values; and for a quantized model those of other ways to run it: in floating point between DequantizeLinear
        and QuantizeLinear, and by ONNX Runtime's defaults, whose sums may saturate.

    Raises:
        PartitionError: The file is no model.
        EngineError: The model is compiled, or does not run on these inputs.
    """
    graph = Graph.of(load_model(path))
    if is_compiled(graph.model):
        raise EngineError(f"{path}: a compiled model can't be the reference. Give the model that it was made from.")
    observed = [value for value in graph.tensors if value.name in names and value.producer() is not None]
    model = folder / "reference.onnx"
    write_temporary(extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=observed, keep_defaults=True), model)
    others: list[NativeSession] = []
    if accumulates_quantized(node.op_type for node in graph.nodes):
        others = [open_observed(model, unfused=True), open_observed(model, exact=False)]
    values, *of_others = (_run(session, feeds) for session in (open_observed(model), *others))
    return values, of_others


def _run(session: NativeSession, feeds: Values) -> Values:
    return _arrays(dict(zip(session.outputs, session.run(feeds), strict=True)))


def run_compiled(path: pathlib.Path, names: Collection[str], feeds: Values, trust: Trust) -> Values:
    """Run a compiled model with its engines, and return its values of some names outside of the engines.

    Raises:
        EngineError: An engine can't be used here, or refuses these inputs.
    """
    model = load_model(path)
    present = {value.name for value in model.graph.outputs}
    values = (value for node in model.graph for value in node.outputs)
    model.graph.outputs.extend(v for v in values if v.name in names and v.name not in present)
    executable = open_executable(model, path, folder=path.parent, run=RunOptions(shares_cores=True, trust=trust))
    if executable.facts.rejected:
        raise EngineError(executable.facts.rejected[0])
    refusals: list[str] = []
    executable.on_fallback = refusals.append
    results = executable.run(feeds)
    if refusals:
        raise ExecutionError(f"{path}: an engine refuses these inputs ({refusals[0]}). Give others.")
    return _arrays(results)


def _arrays(results: Mapping[str, object]) -> Values:
    return {name: value for name, value in results.items() if isinstance(value, np.ndarray)}
