"""Chains the stages of a pipeline, blocks and ONNX files, around a model into one graph."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx_ir as ir

from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import TensorSpec, describe
from trtnode.partitioner.model.values import Dimension, all_values, dimensions
from trtnode.partitioner.pipelines.blocks import OLDEST_OPSET, Block
from trtnode.partitioner.pipelines.node_writer import BlockError, Layout, NodeWriter, Tensor
from trtnode.partitioner.pipelines.stage_models import (
    PATH,
    KeyPath,
    absorb,
    at_opset,
    give_names,
    load_stage,
    opset_of,
    prefix_of,
    set_apart,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Tensor that requests bring for an input of the model. It is the first stage of that input.

    Attributes:
        dtype: Element type; None for that of the model's input.
        shape: One size a dimension, None for any; the first is the batch.
        layout: Order of height, width and channels.
    """

    dtype: ir.DataType | None
    shape: tuple[int | None, ...]
    layout: Layout = "nhwc"


@dataclasses.dataclass(frozen=True, slots=True)
class Keep:
    """A choice behind the model: the first of several tensors that it has stays, all others are left out.

    Attributes:
        tensors: Their names.
    """

    tensors: tuple[str, ...]


Named = tuple[str, ir.Value]
"""A value with its name among the stages."""

AXES = {"nhwc": ("batch", "height", "width", "channels"), "nchw": ("batch", "channels", "height", "width")}
"""Names of an image's axes, by layout."""

DEFAULT_SOURCE = Source(ir.DataType.UINT8, (None, None, None, 3))
"""Source of a block that no other stage feeds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a pipeline.

    Attributes:
        place: Path in the configuration, for messages.
        step: A block, a source, a choice, or the path of an ONNX file.
        tensor: Tensor of a block or source: an input of the model before it, an output behind it.
            None if there is only one.
    """

    place: KeyPath
    step: Block | Source | Keep | pathlib.Path
    tensor: str | None = None


def chain_stages(model: pathlib.Path, before: Sequence[Stage], after: Sequence[Stage]) -> ir.Model:
    """Chain stages around a model.

    A block takes one tensor and returns it under the same name, unless the block has names of its own.
    A file takes each of its inputs from the tensor of that name.
    If no name fits, there must be as many tensors as inputs, and they are paired in order.
    A tensor that no stage takes is passed on and becomes an output in the end.
    An input that no tensor fits becomes an input of the pipeline.
    Names inside the model stay, unless an input or output needs them.

    Args:
        model: Path of an ONNX file.
        before: Stages before the model, in order.
        after: Stages behind the model, in order.

    Returns:
        A model at the newest opset that any stage needs. Where a stage meets the model, the model's symbols stay.

    Raises:
        ModelFileError: A file is no model.
        PipelineError: A stage doesn't fit the one before, or can't be brought into one model with the others.
    """
    stages = (*before, *after)
    main = load_stage(model, PATH)
    files = {stage: load_stage(stage.step, stage.place) for stage in stages if isinstance(stage.step, pathlib.Path)}
    oldest = [stage.step.opset for stage in stages if isinstance(stage.step, Block)]
    opset = max(OLDEST_OPSET, *oldest, *map(opset_of, (main, *files.values())))
    chain = _Chain(at_opset(main, opset, PATH))
    files = {stage: at_opset(file, opset, stage.place) for stage, file in files.items()}
    for stage in before:
        chain.add(stage, files.get(stage), chain.inputs_to_feed())
    chain.enter(before[-1].place if before else PATH)
    for stage in after:
        chain.add(stage, files.get(stage), chain.tensors)
    return chain.finished()


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
        outputs: dict[str, ir.Value] = {}
        for name, value in tensors.items():
            outputs[name] = self._as_output(name, value, outputs.values())
        self._graph.outputs[:] = outputs.values()
        self._graph.inputs[:] = [*self._inputs.values(), *self._graph.inputs]
        give_names(self._graph, {**self._inputs, **outputs})
        for value in all_values(self._graph):
            if value.shape is not None and any(size in self._sizes for size in dimensions(value) or ()):
                value.shape = ir.Shape([self._size(size) for size in dimensions(value) or ()])
        self._graph.sort()
        return self._model

    def _as_output(self, name: str, value: ir.Value, others: Collection[ir.Value]) -> ir.Value:
        """Return a value, or a copy of an input, a constant or another output, because those can't be outputs."""
        if value.producer() is not None and value not in others:
            return value
        write = NodeWriter(self._graph, f"output/{name}")
        copy = write.node("Identity", [value], value.dtype or ir.DataType.UNDEFINED, dimensions(value))
        copy.type = value.type
        return copy


class _Chain(MergedGraph):
    """A pipeline under construction: the graph of the model, with the stages added so far.

    Attributes:
        tensors: Tensors that no stage has taken yet, by name.
    """

    def __init__(self, main: ir.Model) -> None:
        super().__init__(main)
        self.tensors: dict[str, Tensor] = {}

    def inputs_to_feed(self) -> Iterable[str]:
        """Return the tensors that a stage before the model may take."""
        required = [value.name or "" for value in self._required()]
        return required if all(name in required for name in self.tensors) else self.tensors

    def add(self, stage: Stage, model: ir.Model | None, names: Iterable[str]) -> None:
        """Append a stage.

        Args:
            stage: The stage.
            model: The model of a stage that is a file.
            names: Tensors that a block may take.
        """
        if model is not None:
            self._add_model(model, stage.place)
            return
        if isinstance(stage.step, Keep):
            self._keep(stage.step.tensors, stage.place)
            return
        name = _chosen(stage, list(names))
        if isinstance(stage.step, Source):
            self._open(name, stage.step, stage.place)
            return
        if name not in self.tensors:
            self._open(name, DEFAULT_SOURCE, stage.place)
        assert isinstance(stage.step, Block)
        self._apply(stage.step, name, stage.place)

    def enter(self, place: KeyPath) -> None:
        """Feed the tensors to the model."""
        inputs, outputs = named(self._required()), named(self._graph.outputs)
        for _, value in inputs:
            self._graph.inputs.remove(value)
        self._pass_through(inputs, outputs, place)

    def finished(self) -> ir.Model:
        """Return the pipeline with its inputs and outputs.

        Raises:
            PipelineError: An input and an output have the same name.
        """
        return self._finished({name: tensor.value for name, tensor in self.tensors.items()})

    def _required(self) -> list[ir.Value]:
        return [value for value in self._graph.inputs if not value.is_initializer()]

    def _open(self, name: str, source: Source, place: KeyPath) -> None:
        if name in self.tensors or name in self._inputs:
            raise PipelineError(place, f"must stand before all other stages of {name!r}")
        axes = AXES[source.layout] if len(source.shape) == 4 else [f"axis{n}" for n in range(len(source.shape))]
        sizes = [f"{name}.{axis}" if size is None else size for axis, size in zip(axes, source.shape, strict=True)]
        dtype = source.dtype or next((value.dtype for value in self._required() if value.name == name), None)
        kind = None if dtype is None else ir.TensorType(dtype)
        value = ir.Value(name=f"{prefix_of(place)}/input", type=kind, shape=ir.Shape(sizes))
        self._inputs[name] = value
        self.tensors[name] = Tensor(value, source.layout)

    def _apply(self, block: Block, name: str, place: KeyPath) -> None:
        try:
            results = block.apply(self.tensors[name], NodeWriter(self._graph, prefix_of(place), self._inputs))
        except BlockError as error:
            raise PipelineError(place, str(error)) from None
        if not block.names:
            self.tensors[name] = results[0]
            return
        del self.tensors[name]
        self._give(list(zip(block.names, (tensor.value for tensor in results), strict=True)), place)

    def _keep(self, names: Sequence[str], place: KeyPath) -> None:
        """Leave out all tensors but the first of those that are named."""
        found = next((name for name in names if name in self.tensors), None)
        if found is None:
            raise PipelineError(place, f"there is no tensor {quoted(names)} here, only {quoted(self.tensors)}")
        self.tensors = {found: self.tensors[found]}

    def _add_model(self, model: ir.Model, place: KeyPath) -> None:
        graph = model.graph
        inputs = named(value for value in graph.inputs if not value.is_initializer())
        outputs = named(graph.outputs)
        set_apart(graph, prefix_of(place))
        absorb(self._model, model, place)
        self._pass_through(inputs, outputs, place)

    def _pass_through(self, inputs: Sequence[Named], outputs: Sequence[Named], place: KeyPath) -> None:
        fed = self._feed(inputs, place)
        self._give([(name, fed.get(value, value)) for name, value in outputs], place)

    def _feed(self, inputs: Sequence[Named], place: KeyPath) -> dict[ir.Value, ir.Value]:
        """Replace inputs by tensors. An input that no tensor fits becomes an input of the pipeline."""
        names = [name for name, _ in inputs]
        sources = {name: name for name in names if name in self.tensors}
        if self.tensors and not sources:
            if len(names) != len(self.tensors):
                taken = f"what follows takes {quoted(names)}; give them the same names"
                raise PipelineError(place, f"gives {quoted(self.tensors)}, but {taken}")
            sources = dict(zip(names, self.tensors, strict=True))
        fed = {}
        for name, value in inputs:
            if name in sources:
                tensor = self.tensors.pop(sources[name])
                self._check(tensor, name, value, place)
                ir.convenience.replace_all_uses_with(value, tensor.value, replace_graph_outputs=True)
                fed[value] = tensor.value
            elif name in self._inputs:
                raise PipelineError(place, f"its input {name!r} has the name of another stage's; rename one")
            else:
                self._inputs[name] = value
        return fed

    def _give(self, outputs: Iterable[Named], place: KeyPath) -> None:
        for name, value in outputs:
            if name in self.tensors:
                raise PipelineError(place, f"there is a tensor {name!r} already, which no stage has taken; rename one")
            self.tensors[name] = Tensor(value)

    def _check(self, tensor: Tensor, name: str, wanted: ir.Value, place: KeyPath) -> None:
        """Refuse a tensor that doesn't fit an input. Unify their sizes where one is unknown."""
        misfit = self._misfit(tensor.value, wanted)
        if not misfit:
            return
        given, taken = TensorSpec.of(tensor.value), TensorSpec.of(wanted)
        if misfit == "type":
            advice = "" if taken.dtype in (None, ir.DataType.STRING) else f"; add {{cast: {taken.dtype.numpy()}}}"
        else:
            advice = "; add {layout: nchw}" if tensor.layout == "nhwc" and len(given.shape or ()) == 4 else ""
        raise PipelineError(place, f"gives {describe(given)}, but {name!r} takes {describe(taken)}{advice}")


def _chosen(stage: Stage, names: Sequence[str]) -> str:
    """Return the name of the tensor that a stage takes."""
    if stage.tensor is None:
        if len(names) == 1:
            return names[0]
        raise PipelineError(stage.place, f"which of {quoted(names)} is it for? Add the key tensor beside it")
    if stage.tensor not in names:
        raise PipelineError(stage.place, f"there is no tensor {stage.tensor!r} here, only {quoted(names)}")
    return stage.tensor


def named(values: Iterable[ir.Value]) -> list[Named]:
    """Return values with their names."""
    return [(value.name or "", value) for value in values]


def quoted(names: Iterable[str]) -> str:
    """Return names as they are listed in a message."""
    return ", ".join(map(repr, names)) or "nothing"
