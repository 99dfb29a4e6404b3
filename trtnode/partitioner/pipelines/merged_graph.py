"""A graph into which models are brought: what they pass to each other has one type, and sizes that agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.values import Dimension, all_values, dimensions
from trtnode.partitioner.pipelines.node_writer import NodeWriter
from trtnode.partitioner.pipelines.stage_models import PATH, KeyPath, give_names

Named = tuple[str, ir.Value]
"""A value with its name among the stages."""


class MergedGraph:
    """A graph under construction. It begins as that of a model, whose symbols stay."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._graph = model.graph
        self._inputs: dict[str, ir.Value] = {}
        self._symbols = {size for value in all_values(model.graph) for size in dimensions(value) or ()}
        self._sizes: dict[str, Dimension] = {}
        """Replacement of a symbol, where two stages meet."""

    def _misfit(self, given: ir.Value, wanted: ir.Value) -> str:
        """Return in what a tensor doesn't fit an input: ``type``, ``shape``, or nothing. Unify their sizes."""
        one, other = TensorSpec.of(given), TensorSpec.of(wanted)
        if None not in (one.dtype, other.dtype) and one.dtype != other.dtype:
            return "type"
        return "" if one.shape is None or other.shape is None or self._equal(one.shape, other.shape) else "shape"

    def _equal(self, given: Sequence[Dimension], taken: Sequence[Dimension]) -> bool:
        return len(given) == len(taken) and all(map(self._same_size, given, taken))

    def _same_size(self, given: Dimension, taken: Dimension) -> bool:
        given, taken = self._size(given), self._size(taken)
        if given == taken or given is None or taken is None:
            return True
        # Of two symbols, that of the model stays.
        pairs = sorted(((given, taken), (taken, given)), key=lambda pair: pair[0] in self._symbols)
        for symbol, size in pairs:
            if isinstance(symbol, str):
                self._sizes[symbol] = size
                return True
        return False

    def _size(self, size: Dimension) -> Dimension:
        while isinstance(size, str) and size in self._sizes:
            size = self._sizes[size]
        return size

    def _finished(self, tensors: Mapping[str, ir.Value], place: KeyPath = PATH) -> ir.Model:
        """Return the model with its inputs, and these tensors as its outputs.

        Raises:
            PipelineError: An input and an output have the same name.
        """
        shared = self._inputs.keys() & tensors.keys()
        if shared:
            raise PipelineError(
                place, f"the pipeline has an input and an output {min(shared)!r}; rename one in its file"
            )
        outputs = {name: self._as_output(name, value) for name, value in tensors.items()}
        self._graph.outputs[:] = outputs.values()
        self._graph.inputs[:] = [*self._inputs.values(), *self._graph.inputs]
        give_names(self._graph, {**self._inputs, **outputs})
        for value in all_values(self._graph):
            if value.shape is not None and any(size in self._sizes for size in dimensions(value) or ()):
                value.shape = ir.Shape([self._size(size) for size in dimensions(value) or ()])
        self._graph.sort()
        return self._model

    def _as_output(self, name: str, value: ir.Value) -> ir.Value:
        """Return a value, or a copy of an input or a constant, because those can't be outputs."""
        if value.producer() is not None:
            return value
        write = NodeWriter(self._graph, f"output/{name}")
        copy = write.node("Identity", [value], value.dtype or ir.DataType.UNDEFINED, dimensions(value))
        copy.type = value.type
        return copy


def named(values: Iterable[ir.Value]) -> list[Named]:
    """Return values with their names."""
    return [(value.name or "", value) for value in values]


def quoted(names: Iterable[str]) -> str:
    """Return names as they are listed in a message."""
    return ", ".join(map(repr, names)) or "nothing"
