"""Merges the models of an ensemble, which hand tensors on to each other, into one graph."""

from __future__ import annotations

import dataclasses
import graphlib
import pathlib
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import STEPS, TensorSpec, describe
from trtnode.partitioner.model.new_values import NewNames
from trtnode.partitioner.model.values import dimensions
from trtnode.partitioner.passes.clean_up import remove_dead_nodes
from trtnode.partitioner.pipelines.blocks import OLDEST_OPSET
from trtnode.partitioner.pipelines.chaining import MergedGraph, named, quoted
from trtnode.partitioner.pipelines.node_writer import NodeWriter
from trtnode.partitioner.pipelines.stage_models import KeyPath, absorb, at_opset, opset_of, set_apart

ENSEMBLE: KeyPath = ("ensemble",)
"""Path of the steps in the configuration."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One run of a model in an ensemble.

    Attributes:
        place: Path in the configuration, for messages.
        name: Of the model. The names of its nodes begin with it.
        model: The model, which is used up.
        file: Steps with the same file share its weights; None shares none.
        inputs: The tensor of the ensemble for each input of the model, by name.
        outputs: The tensor of the ensemble that an output of the model is, by name.
        reshapes: The shape of an input or output in the ensemble, and that in the file, by name; 0 is the batch.
    """

    place: KeyPath
    name: str
    model: ir.Model
    file: pathlib.Path | None
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    reshapes: Mapping[str, tuple[Sequence[int], Sequence[int]]] = dataclasses.field(default_factory=dict)


def merge_steps(steps: Sequence[Step], inputs: Collection[str] = (), outputs: Collection[str] = ()) -> ir.Model:
    """Merge the steps of an ensemble.

    Args:
        steps: In any order: tensors tell which of them waits for which.
        inputs: Tensors that requests bring; none for all that no step gives.
        outputs: Tensors of an answer; none for all that no step takes.

    Returns:
        A model at the newest opset of a step, without nodes that no output needs. Its property ``STEPS`` names them.

    Raises:
        PipelineError: Steps wait for each other, a tensor is missing or doubly given, or a model doesn't fit.
    """
    ordered = _in_order(steps, inputs)
    opset = max(OLDEST_OPSET, *(opset_of(step.model) for step in ordered))
    merged = _Ensemble(opset, inputs)
    names = list(map(NewNames(()), (step.name for step in ordered)))
    for name, step in zip(names, ordered, strict=True):
        merged.add(dataclasses.replace(step, model=at_opset(step.model, opset, step.place)), name)
    model = merged.finished(outputs)
    remove_dead_nodes(model)
    model.metadata_props[STEPS] = ",".join(names)
    return model


def _in_order(steps: Sequence[Step], inputs: Collection[str]) -> list[Step]:
    """Return steps in an order in which each finds its inputs."""
    givers: dict[str, int] = {}
    for number, step in enumerate(steps):
        for output, tensor in step.outputs.items():
            if tensor in givers or tensor in inputs:
                other = f"{steps[givers[tensor]].name!r} gives" if tensor in givers else "requests bring"
                text = f"{tensor!r} is a tensor that {other}, too; give it another name"
                raise PipelineError((*step.place, "outputs", output), text)
            givers[tensor] = number
    waits = {
        number: [givers[tensor] for tensor in step.inputs.values() if tensor in givers]
        for number, step in enumerate(steps)
    }
    try:
        return [steps[number] for number in graphlib.TopologicalSorter(waits).static_order()]
    except graphlib.CycleError as error:
        ring = error.args[1]
        names = " > ".join(steps[number].name for number in ring)
        text = f"steps wait for each other ({names}); take one's tensors from an input or an earlier step"
        raise PipelineError(steps[min(ring)].place, text) from None


class _Ensemble(MergedGraph):
    """An ensemble under construction."""

    def __init__(self, opset: int, inputs: Collection[str]) -> None:
        graph = ir.Graph((), (), nodes=(), opset_imports={"": opset}, name="ensemble")
        super().__init__(ir.Model(graph, ir_version=10))
        self._declared = inputs
        self._tensors: dict[str, ir.Value] = {}
        self._taken: set[str] = set()
        self._weights: dict[pathlib.Path, dict[str, ir.Value]] = {}

    def add(self, step: Step, prefix: str) -> None:
        """Append a step whose inputs are there."""
        graph = step.model.graph
        for name, (seen, own) in step.reshapes.items():
            _reshape(graph, name, seen, own)
        inputs, outputs = dict(named(graph.inputs)), [value.name or "" for value in graph.outputs]
        _check_names(step, inputs, outputs)
        self._share_weights(step)
        results = dict(zip(outputs, graph.outputs, strict=True))
        for op in graph:
            op.name = op.name or f"{op.op_type}:{op.outputs[0].name}"
        set_apart(graph, prefix)
        absorb(self._model, step.model, step.place)
        fed = {inputs[name]: self._feed(inputs[name], name, step) for name in step.inputs}
        for name, tensor in step.outputs.items():
            self._tensors[tensor] = fed.get(results[name], results[name])

    def finished(self, outputs: Collection[str]) -> ir.Model:
        """Return the merged model with these outputs; without any, with those that no step takes."""
        for name in outputs:
            if name not in self._tensors:
                text = f"no step gives it; there are {quoted(self._tensors)}"
                raise PipelineError(("interface", "outputs", name), text)
        names = outputs or [name for name in self._tensors if name not in self._taken]
        if not names:
            raise PipelineError(ENSEMBLE, "gives nothing; name an output of a step that no other step takes")
        return self._finished({name: self._tensors[name] for name in names}, ENSEMBLE)

    def _share_weights(self, step: Step) -> None:
        """Let a step use the weights of an earlier one of the same file."""
        weights = step.model.graph.initializers
        if step.file in self._weights:
            step.model.functions.clear()  # the same are there already
        known = self._weights.setdefault(step.file, dict(weights)) if step.file is not None else {}
        for name, value in list(weights.items()):
            if name not in step.inputs and known.get(name, value) is not value:
                ir.convenience.replace_all_uses_with(value, known[name], replace_graph_outputs=True)
                del weights[name]

    def _feed(self, wanted: ir.Value, name: str, step: Step) -> ir.Value:
        """Replace an input of a model by a tensor. One that no step gives becomes an input of the ensemble."""
        tensor, place = step.inputs[name], (*step.place, "inputs", name)
        if tensor not in self._tensors:
            if self._declared and tensor not in self._declared:
                text = f"there is no tensor {tensor!r}: no step gives it, and requests bring {quoted(self._declared)}"
                raise PipelineError(place, text)
            opened = ir.Value(name=tensor, type=wanted.type, shape=wanted.shape)
            opened.meta.update(wanted.meta)
            self._tensors[tensor] = self._inputs[tensor] = opened
        given = self._tensors[tensor]
        self._taken.add(tensor)
        self._symbols.update(dimensions(given) or ())
        if self._misfit(given, wanted):
            one, other = describe(TensorSpec.of(given)), describe(TensorSpec.of(wanted))
            text = f"takes {other}, and {tensor!r} is {one}; export one of the models for the other's tensor"
            raise PipelineError(place, text)
        ir.convenience.replace_all_uses_with(wanted, given, replace_graph_outputs=True)
        return given


def _reshape(graph: ir.Graph, name: str, seen: Sequence[int], own: Sequence[int]) -> None:
    """Let an input or output of a model have another shape than in its file."""
    write = NodeWriter(graph, f"reshape/{name}")
    for ports, target in ((graph.inputs, own), (graph.outputs, seen)):
        for place, value in enumerate(ports):
            if value.name != name or value.dtype is None:
                continue
            known = dimensions(value) or (None,)
            shape = [known[0] if size == 0 else None if size == -1 else size for size in seen]
            shape_of = write.constant("shape", ir.tensor(list(target), ir.DataType.INT64))
            value.name = f"reshape/{name}/{name}"
            port = ir.Value(name=name, type=value.type, shape=ir.Shape(shape))
            if target is own:
                result = write.node("Reshape", [port, shape_of], value.dtype, known)
                ir.convenience.replace_all_uses_with(value, result, replace_graph_outputs=True)
            else:
                port = write.node("Reshape", [value, shape_of], value.dtype, shape)
                port.name = name
            ports[place] = port


def _check_names(step: Step, inputs: Mapping[str, ir.Value], outputs: Collection[str]) -> None:
    for key, known, used in (("inputs", inputs.keys(), step.inputs), ("outputs", outputs, step.outputs)):
        for name in used:
            if name not in known:
                text = f"{step.name!r} has no {key.removesuffix('s')} {name!r}; it has {quoted(known)}"
                raise PipelineError((*step.place, key, name), text)
    for name, value in inputs.items():
        if name not in step.inputs and not value.is_initializer():
            text = f"no tensor is named for the input {name!r} of {step.name!r}; add it"
            raise PipelineError((*step.place, "inputs"), text)
