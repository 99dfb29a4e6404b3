"""Prunes the model of a file, and measures what that does to its answers."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
import onnx

from trtnode.engines.artifact.files import check_output, write_model, write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.errors import AlreadyCompiledError, CalibrationDataError, ExecutionError
from trtnode.engines.inputs.samples import find_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.precision.accuracy_budget import Comparison, Figures, adapted
from trtnode.engines.precision.options import AccuracyBudget
from trtnode.engines.quantization.dataset import CalibrationDataset
from trtnode.engines.sparse.pruning import PruningScope, prune_model
from trtnode.engines.sparse.tensors import floats_of
from trtnode.partitioner.compiled.trtnode import is_compiled
from trtnode.partitioner.graph.view import Graph, specs
from trtnode.partitioner.model.external_data import leave_weights_outside
from trtnode.partitioner.model.loading import load_model, read_proto

MOST_SAMPLES = 200
"""More say little more about a mean."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PruningReport:
    """The outcome of pruning.

    Attributes:
        layers: Nodes that were pruned.
        zeros: Share of zeros in their weights.
        zeros_of_all: Share of zeros in all float32 weights of the model, biases left out.
        figures: Distance of the answers from those of the dense model; None if there is no sample that it runs on.
        broken: A sentence about the limit of the default accuracy budget that the answers exceed; None if they keep it.
    """

    layers: tuple[str, ...]
    zeros: float
    zeros_of_all: float
    figures: Figures | None
    broken: str | None


def prune_file(
    source: pathlib.Path,
    output: pathlib.Path,
    *,
    sparsity: float,
    block: int,
    scope: PruningScope,
    data: str | None = None,
) -> PruningReport:
    """Write a model with blocks of zeros in its weights, and compare its answers with those of the dense one.

    Args:
        source: The dense model.
        output: The file to write.
        sparsity: The share of blocks that become zero, from 0 to 1.
        block: Successive output channels of a block.
        scope: The layers.
        data: Samples of the inputs, as for a calibration; None generates two.

    Raises:
        PartitionError: The file is no model.
        AlreadyCompiledError: It is a compiled model.
        PruningError: No layer can be pruned.
        CalibrationDataError: The data can't be read, don't fit the model, or it doesn't run on them.
        ModelLoadError: ONNX Runtime refuses the model.
        OutputFileError: The file can't be written.
    """
    check_output(output, source)
    graph = Graph.of(load_model(source))
    if is_compiled(graph.model):
        raise AlreadyCompiledError(source)
    pruned = read_proto(source)
    leave_weights_outside(source, pruned)
    weights = prune_model(pruned, sparsity, block, scope)
    figures = _compare(source, pruned, graph, data)
    write_model(pruned, output)
    return PruningReport(
        layers=tuple(dict.fromkeys(one.layer for one in weights)),
        zeros=_share_of_zeros(one.matrix for one in weights),
        zeros_of_all=_share_of_zeros(_float_weights(pruned)),
        figures=figures,
        broken=figures.breaking(adapted(AccuracyBudget(), graph)) if figures is not None else None,
    )


def _compare(source: pathlib.Path, pruned: onnx.ModelProto, graph: Graph, data: str | None) -> Figures | None:
    """Run both models on samples. None where no samples are given, and the model runs on nothing that is generated."""
    inputs = specs(graph.inputs)
    before = NativeSession(source, name=str(source))
    with TemporaryFolder() as folder:
        write_temporary(pruned, folder / "pruned.onnx", link=True)
        after = NativeSession(folder / "pruned.onnx", name="the pruned model")
    given = CalibrationDataset(data).feeds(inputs, limit=MOST_SAMPLES) if data else find_samples(before, inputs, None)
    comparison = Comparison(AccuracyBudget())
    for feeds in given:
        try:
            results = before.run(feeds), after.run(feeds)
        except ExecutionError as error:
            raise CalibrationDataError(data or "A generated sample", f"the model doesn't run on it: {error}") from error
        comparison.add(*(dict(zip(before.outputs, values, strict=True)) for values in results))
    figures = comparison.figures()
    return figures if figures.samples else None


def _share_of_zeros(arrays: Iterable[np.ndarray]) -> float:
    zeros = sizes = 0
    for array in arrays:
        zeros += array.size - int(np.count_nonzero(array))
        sizes += array.size
    return zeros / sizes if sizes else 0.0


def _float_weights(model: onnx.ModelProto) -> Iterator[np.ndarray]:
    """Yield the tensors that layers multiply by: neither biases nor sizes."""
    for tensor in model.graph.initializer:
        if (values := floats_of(tensor)) is not None and values.ndim > 1:
            yield values
