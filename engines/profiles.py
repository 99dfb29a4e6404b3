"""Shapes that engines are built for: read, checked against a model, and followed to what each segment reads.

Engines of some libraries run only on shapes inside a range that they were built for, and fastest on one of them. A
profile is such a range for each input. The user gives profiles of the model's inputs; those of the tensors between its
nodes follow from them by shape inference.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from engines.errors import BuildError, InputShapesError
from engines.samples import SampledSizes
from partitioner import Graph, Segment, TensorSpec
from partitioner.concrete import concrete_model, known_integers, known_shapes

Sizes = tuple[int, ...]
POINTS = ("low", "best", "high")
_FORM = re.compile(r"\d+(x\d+)*|")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRange:
    """Shapes of one input that an engine runs on: ``low <= best <= high`` in each dimension."""

    low: Sizes
    best: Sizes
    """The shape that kernels are chosen for."""
    high: Sizes

    @classmethod
    def parse(cls, text: str) -> ShapeRange:
        """Read ``1x3x224x224``, or three such shapes with commas between: least, best, most.

        Raises:
            ValueError: The text has another form, or the shapes are not in order.
        """
        parts = text.split(",")
        if len(parts) not in (1, 3) or not all(map(_FORM.fullmatch, parts)):
            raise ValueError(f"{text!r} should be one shape, such as 1x3x224x224, or three of them: MIN,OPT,MAX")
        shapes = [tuple(int(size) for size in part.split("x") if size) for part in parts]
        low, best, high = shapes * (3 // len(shapes))
        shape_range = cls(low=low, best=best, high=high)
        for _, problem in shape_range.problems():
            raise ValueError(f"{text!r}: {problem}")
        return shape_range

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the point at fault, and how: in rank, then in order."""
        for name, least, most in (("best", self.low, self.best), ("high", self.best, self.high)):
            if len(least) != len(most):
                yield name, f"{_shown(most)} should have {len(least)} dimensions, like {_shown(least)}"
            elif any(a > b for a, b in zip(least, most, strict=True)):
                yield name, f"{_shown(most)} is less than {_shown(least)} somewhere; min <= opt <= max must hold"


Profile = Mapping[str, ShapeRange]
"""By name of the input: its shapes, or the elements of one that ``holds_sizes``."""


def holds_sizes(spec: TensorSpec) -> bool:
    """Whether a tensor may be one that shapes are computed from: a few integers."""
    integers = spec.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    return integers and spec.static_shape is not None and len(spec.static_shape) < 2


def profile_as_json(profile: Profile) -> dict[str, dict[str, Sizes]]:
    """A profile in the words of servable.yaml."""
    return {name: {"min": one.low, "opt": one.best, "max": one.high} for name, one in profile.items()}


def check_profiles(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> None:
    """Check what a user gave for the inputs of a model.

    Raises:
        InputShapesError: An input is unknown or missing, or a shape contradicts what the model declares.
    """
    for number, profile in enumerate(profiles):
        declared = {spec.name: spec for spec in inputs}
        for name, shapes in profile.items():
            if name not in declared:
                raise InputShapesError(number, name, f"the model has no such input; it has {', '.join(declared)}")
            if (problem := _contradiction(declared[name], shapes)) is not None:
                raise InputShapesError(number, name, problem)
        for name, spec in declared.items():
            tensor = spec.dtype is not None  # of sequences and the like nobody asks a shape
            if name not in profile and tensor and spec.static_shape is None and not spec.optional:
                raise InputShapesError(number, name, "its shape is not fixed, so it needs one here too")


def _contradiction(spec: TensorSpec, shapes: ShapeRange) -> str | None:
    if spec.shape is None:
        return None
    if holds_sizes(spec):
        elements = (spec.shape or (1,))[0]
        return None if len(shapes.low) == elements else f"it has {elements} elements, not {len(shapes.low)}"
    fits = len(shapes.low) == len(spec.shape) and all(
        not isinstance(declared, int) or declared == low == high
        for declared, low, high in zip(spec.shape, shapes.low, shapes.high, strict=True)
    )
    declared = " x ".join("?" if size is None else str(size) for size in spec.shape)
    given = " to ".join(dict.fromkeys((_shown(shapes.low), _shown(shapes.high))))
    return None if fits else f"{given} does not fit the model's, which is {declared}"


def sampled(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> tuple[TensorSpec, ...]:
    """Inputs as samples of them must be for engines to take them: as the first profile says that they are best."""
    best = {name: one.best for name, one in profiles[0].items()} if profiles else {}
    return tuple(_sampled(spec, best[spec.name]) if spec.name in best else spec for spec in inputs)


def _sampled(spec: TensorSpec, best: Sizes) -> TensorSpec:
    if holds_sizes(spec):
        return SampledSizes(name=spec.name, dtype=spec.dtype, shape=spec.shape, optional=spec.optional, elements=best)
    return dataclasses.replace(spec, shape=best)


def fix_shapes(model: ir.Model, profiles: Sequence[Profile]) -> None:
    """Declare inputs to have the one shape that all profiles give them, in place; others stay as they are."""
    for value in model.graph.inputs:
        ranges = [profile[value.name or ""] for profile in profiles if value.name in profile]
        shapes = {shape for one in ranges for shape in (one.low, one.high)}
        if len(shapes) == 1 and not holds_sizes(TensorSpec.of(value)):
            value.shape = ir.Shape(shapes.pop())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A profile of a graph's inputs, followed to all of its tensors, by name.

    Attributes:
        shapes: Of tensors of which every dimension is known then.
        elements: Of the integer tensors of rank 0 or 1 that are known then.
    """

    shapes: Mapping[str, ShapeRange]
    elements: Mapping[str, ShapeRange]


def follow(graph: Graph, profile: Profile) -> Followed:
    """Infer what a profile of a graph's inputs means for all other tensors."""
    sizes = {spec.name for spec in map(TensorSpec.of, graph.inputs) if holds_sizes(spec)}
    worlds = []
    for point in POINTS:
        given = {name: getattr(one, point) for name, one in profile.items()}
        values = {name: given[name] for name in given.keys() & sizes}
        worlds.append(concrete_model(graph.model, {n: s for n, s in given.items() if n not in sizes}, values))
    return Followed(
        shapes=_joined([known_shapes(world) for world in worlds]),
        elements=_joined([known_integers(world) for world in worlds]),
    )


def segment_profile(segment: Segment, known: Followed, number: int) -> Profile:
    """What an engine for a segment is built for.

    Args:
        segment: The segment.
        known: About all tensors of its graph.
        number: Of the profile, for the message.

    Raises:
        BuildError: The shape of an input does not follow from those of the model's inputs.
    """
    profile: dict[str, ShapeRange] = {}
    for spec in map(TensorSpec.of, segment.inputs):
        if holds_sizes(spec) and spec.name in known.elements:
            profile[spec.name] = known.elements[spec.name]
        elif spec.static_shape is None and spec.name not in known.shapes:
            raise BuildError(f"The shape of {spec.name!r} does not follow from the inputs' shapes in profile {number}.")
        elif spec.static_shape is None:
            profile[spec.name] = known.shapes[spec.name]
    return profile


def _joined(found: Sequence[Mapping[str, Sizes]]) -> dict[str, ShapeRange]:
    """What is known at all three points and of one rank; a size may fall where another rises."""
    low, best, high = found
    joined = {}
    for name, middle in best.items():
        sizes = [low.get(name, ()), middle, high.get(name, ())]
        if name in low and name in high and len({len(s) for s in sizes}) == 1:
            columns = list(zip(*sizes, strict=True))
            joined[name] = ShapeRange(low=tuple(map(min, columns)), best=middle, high=tuple(map(max, columns)))
    return joined


def _shown(sizes: Sizes) -> str:
    return "x".join(map(str, sizes)) or "a scalar"
