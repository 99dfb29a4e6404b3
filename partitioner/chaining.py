"""Chains the stages of a pipeline, building blocks and ONNX files, around a model: one graph comes out."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from partitioner.blocks import OLDEST_OPSET, Block
from partitioner.errors import PipelineError
from partitioner.graph import TensorSpec, describe
from partitioner.node_writer import BlockError, Layout, NodeWriter, Tensor
from partitioner.stage_models import (
    PATH,
    Place,
    absorb,
    at_opset,
    give_names,
    load_stage,
    opset_of,
    prefix_of,
    set_apart,
    values_of,
)
from partitioner.values import Dimension, dimensions


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """What requests bring for an input of the model: stands first among the stages of that input.

    Attributes:
        dtype: Element type.
        shape: A size a dimension, None for any; the first is the batch.
        layout: Where height, width and channels are.
    """

    dtype: ir.DataType
    shape: tuple[int | None, ...]
    layout: Layout = "nhwc"


Named = tuple[str, ir.Value]
"""A value and the name by which stages know it."""

AXES = {"nhwc": ("batch", "height", "width", "channels"), "nchw": ("batch", "channels", "height", "width")}
"""What the axes of images are, by layout."""

DEFAULT_SOURCE = Source(ir.DataType.UINT8, (None, None, None, 3))
"""In front of a block that no other stage feeds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One step of a pipeline.

    Attributes:
        place: Where it stands in the configuration, for messages.
        step: What it does; a path is an ONNX file.
        tensor: What a block or source is for: in front of the model one of its inputs, behind it one of its outputs.
            None where there is only one.
    """

    place: Place
    step: Block | Source | pathlib.Path
    tensor: str | None = None


def chain_stages(model: pathlib.Path, before: Sequence[Stage], after: Sequence[Stage]) -> ir.Model:
    """Chain stages around a model.

    A block takes one tensor and gives it back, changed, under the same name, unless it has names of its own. A file
    takes each of its inputs from the tensor of that name; where no name fits, tensors and inputs must be as many, and
    go together in order. What no stage takes is handed on, and in the end an output; an input that no tensor fits
    becomes an input of the whole. Names inside the model stay as they are, unless an input or output needs them.

    Args:
        model: An ONNX file.
        before: Stages in front of it, in order.
        after: Stages behind it, in order.

    Returns:
        A model at the newest opset that any stage needs. Unknown sizes are those of the model where the two meet.

    Raises:
        ModelFileError: A file is no model.
        PipelineError: A stage doesn't fit the one before, or can't be brought into one model with the others.
    """
    stages = (*before, *after)
    main = load_stage(model, PATH)
    files = {stage: load_stage(stage.step, stage.place) for stage in stages if isinstance(stage.step, pathlib.Path)}
    oldest = [stage.step.opset for stage in stages if not isinstance(stage.step, Source | pathlib.Path)]
    opset = max(OLDEST_OPSET, *oldest, *map(opset_of, (main, *files.values())))
    chain = _Chain(at_opset(main, opset, PATH))
    files = {stage: at_opset(file, opset, stage.place) for stage, file in files.items()}
    for stage in before:
        chain.add(stage, files.get(stage), chain.inputs_to_feed())
    chain.enter(before[-1].place if before else PATH)
    for stage in after:
        chain.add(stage, files.get(stage), chain.tensors)
    return chain.finished()


class _Chain:
    """A model on its way to its place between stages.

    Attributes:
        tensors: What the last stages gave and none has taken yet, by name.
    """

    def __init__(self, main: ir.Model) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._model = main
        self._graph = main.graph
        self._inputs: dict[str, ir.Value] = {}
        self._symbols = {size for value in values_of(main.graph) for size in dimensions(value) or ()}
        self._sizes: dict[str, Dimension] = {}
        """What takes the place of a symbol, where two stages meet."""

    def inputs_to_feed(self) -> Iterable[str]:
        """Names that a stage in front of the model may be for."""
        required = [value.name or "" for value in self._required()]
        return required if all(name in required for name in self.tensors) else self.tensors

    def add(self, stage: Stage, model: ir.Model | None, names: Iterable[str]) -> None:
        """Put a stage behind those that are there.

        Args:
            stage: What to add.
            model: The model of a stage that is a file.
            names: What a block may be for.
        """
        if model is not None:
            self._add_model(model, stage.place)
            return
        name = _chosen(stage, list(names))
        if isinstance(stage.step, Source):
            self._open(name, stage.step, stage.place)
            return
        if name not in self.tensors:
            self._open(name, DEFAULT_SOURCE, stage.place)
        assert not isinstance(stage.step, pathlib.Path)
        self._apply(stage.step, name, stage.place)

    def enter(self, place: Place) -> None:
        """Let the model take what is there."""
        inputs, outputs = _named(self._required()), _named(self._graph.outputs)
        for _, value in inputs:
            self._graph.inputs.remove(value)
        self._pass_through(inputs, outputs, place)

    def finished(self) -> ir.Model:
        """The whole, with its inputs and outputs.

        Raises:
            PipelineError: An input and an output have one name.
        """
        shared = self._inputs.keys() & self.tensors.keys()
        if shared:
            raise PipelineError(
                PATH, f"the pipeline has an input and an output {min(shared)!r}; rename one in its file"
            )
        outputs = {name: self._as_output(name, tensor.value) for name, tensor in self.tensors.items()}
        self._graph.outputs[:] = outputs.values()
        self._graph.inputs[:] = [*self._inputs.values(), *self._graph.inputs]
        give_names(self._graph, {**self._inputs, **outputs})
        for value in values_of(self._graph):
            if value.shape is not None and any(size in self._sizes for size in dimensions(value) or ()):
                value.shape = ir.Shape([self._size(size) for size in dimensions(value) or ()])
        self._graph.sort()
        return self._model

    def _required(self) -> list[ir.Value]:
        return [value for value in self._graph.inputs if not value.is_initializer()]

    def _open(self, name: str, source: Source, place: Place) -> None:
        if name in self.tensors or name in self._inputs:
            raise PipelineError(place, f"must stand before all other stages of {name!r}")
        axes = AXES[source.layout] if len(source.shape) == 4 else [f"axis{n}" for n in range(len(source.shape))]
        sizes = [f"{name}.{axis}" if size is None else size for axis, size in zip(axes, source.shape, strict=True)]
        value = ir.Value(name=f"{prefix_of(place)}/input", type=ir.TensorType(source.dtype), shape=ir.Shape(sizes))
        self._inputs[name] = value
        self.tensors[name] = Tensor(value, source.layout)

    def _apply(self, block: Block, name: str, place: Place) -> None:
        try:
            results = block.apply(self.tensors[name], NodeWriter(self._graph, prefix_of(place)))
        except BlockError as error:
            raise PipelineError(place, str(error)) from None
        if not block.names:
            self.tensors[name] = results[0]
            return
        del self.tensors[name]
        self._give(list(zip(block.names, (tensor.value for tensor in results), strict=True)), place)

    def _add_model(self, model: ir.Model, place: Place) -> None:
        graph = model.graph
        inputs = _named(value for value in graph.inputs if not value.is_initializer())
        outputs = _named(graph.outputs)
        set_apart(graph, prefix_of(place))
        absorb(self._model, model, place)
        self._pass_through(inputs, outputs, place)

    def _pass_through(self, inputs: Sequence[Named], outputs: Sequence[Named], place: Place) -> None:
        fed = self._feed(inputs, place)
        self._give([(name, fed.get(value, value)) for name, value in outputs], place)

    def _feed(self, inputs: Sequence[Named], place: Place) -> dict[ir.Value, ir.Value]:
        """Put the tensors that are there in the place of inputs; what none is for becomes an input of the whole."""
        names = [name for name, _ in inputs]
        sources = {name: name for name in names if name in self.tensors}
        if self.tensors and not sources:
            if len(names) != len(self.tensors):
                taken = f"what follows takes {_quoted(names)}; give them the same names"
                raise PipelineError(place, f"gives {_quoted(self.tensors)}, but {taken}")
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

    def _give(self, outputs: Iterable[Named], place: Place) -> None:
        for name, value in outputs:
            if name in self.tensors:
                raise PipelineError(place, f"there is a tensor {name!r} already, which no stage has taken; rename one")
            self.tensors[name] = Tensor(value)

    def _check(self, tensor: Tensor, name: str, wanted: ir.Value, place: Place) -> None:
        """Refuse a tensor that doesn't fit an input, and make sizes equal where one of them is unknown."""
        given, taken = TensorSpec.of(tensor.value), TensorSpec.of(wanted)
        if None not in (given.dtype, taken.dtype) and given.dtype != taken.dtype:
            advice = "" if taken.dtype in (None, ir.DataType.STRING) else f"; add {{cast: {taken.dtype.numpy()}}}"
        elif given.shape is None or taken.shape is None or self._equal(given.shape, taken.shape):
            return
        else:
            advice = "; add {layout: nchw}" if tensor.layout == "nhwc" and len(given.shape) == 4 else ""
        raise PipelineError(place, f"gives {describe(given)}, but {name!r} takes {describe(taken)}{advice}")

    def _equal(self, given: Sequence[Dimension], taken: Sequence[Dimension]) -> bool:
        return len(given) == len(taken) and all(map(self._same_size, given, taken))

    def _same_size(self, given: Dimension, taken: Dimension) -> bool:
        given, taken = self._size(given), self._size(taken)
        if given == taken or given is None or taken is None:
            return True
        # Where both are symbols, that of the model stays.
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

    def _as_output(self, name: str, value: ir.Value) -> ir.Value:
        """A value, or a copy of one that is an input or a constant: those are no outputs."""
        if value.producer() is not None:
            return value
        write = NodeWriter(self._graph, f"output/{name}")
        copy = write.node("Identity", [value], value.dtype or ir.DataType.UNDEFINED, dimensions(value))
        copy.type = value.type
        return copy


def _named(values: Iterable[ir.Value]) -> list[Named]:
    return [(value.name or "", value) for value in values]


def _chosen(stage: Stage, names: Sequence[str]) -> str:
    """Which tensor a stage is for."""
    if stage.tensor is None:
        if len(names) == 1:
            return names[0]
        raise PipelineError(stage.place, f"which of {_quoted(names)} is it for? Add the key tensor beside it")
    if stage.tensor not in names:
        raise PipelineError(stage.place, f"there is no tensor {stage.tensor!r} here, only {_quoted(names)}")
    return stage.tensor


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
