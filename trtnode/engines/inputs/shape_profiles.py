"""Checks shape profiles against a model, and infers the profiles of its segments.

Engines of some libraries run only on shapes inside a range that they were built for, and fastest on one of them. A
profile is such a range for each input. The user gives profiles of the model's inputs. Shape inference gives those of
the tensors between its nodes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from trtnode.engines.backends.shape_range import Profile, ShapeRange, Sizes, shown
from trtnode.engines.errors import InputShapesError, UnknownShapeError
from trtnode.engines.inputs.samples import SampledSizes
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.view import Graph, TensorSpec, describe
from trtnode.partitioner.model.values import GIVEN_SIZES
from trtnode.partitioner.passes.concrete_shapes import concrete_model, known_integers, known_shapes

POINTS = ("min", "opt", "max")


def holds_sizes(spec: TensorSpec) -> bool:
    """Return whether shapes may be computed from a tensor, which holds a few integers."""
    integers = spec.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    return integers and spec.static_shape is not None and len(spec.static_shape) < 2


def check_profiles(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> None:
    """Check a user's profiles of the inputs of a model.

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
            tensor = spec.dtype is not None  # sequences and the like have no shape
            if name not in profile and tensor and spec.static_shape is None and not spec.optional:
                raise InputShapesError(number, name, "its shape is not fixed, so it needs one here too")


def _contradiction(spec: TensorSpec, shapes: ShapeRange) -> str | None:
    if shapes.values and not holds_sizes(spec):
        return f"it takes no values: it is {describe(spec)}, and they belong to a few integers of rank 0 or 1"
    if spec.shape is None:
        return None
    if holds_sizes(spec):
        elements = (spec.shape or (1,))[0]
        return None if len(shapes.min) == elements else f"it has {elements} elements, not {len(shapes.min)}"
    fits = len(shapes.min) == len(spec.shape) and all(
        not isinstance(declared, int) or declared == low == high
        for declared, low, high in zip(spec.shape, shapes.min, shapes.max, strict=True)
    )
    declared = " x ".join("?" if size is None else str(size) for size in spec.shape)
    given = " to ".join(dict.fromkeys((shown(shapes.min), shown(shapes.max))))
    return None if fits else f"{given} does not fit the model's, which is {declared}"


def sampled(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> tuple[TensorSpec, ...]:
    """Return inputs with the best shapes of the first profile, which samples for engines must have."""
    best = {name: one.opt for name, one in profiles[0].items()} if profiles else {}
    return tuple(_sampled(spec, best[spec.name]) if spec.name in best else spec for spec in inputs)


def sampled_at_points(inputs: Sequence[TensorSpec], profiles: Sequence[Profile]) -> list[tuple[TensorSpec, ...]]:
    """Return inputs in each distinct combination of shapes at a point of a profile."""
    found = (
        tuple(_sampled(s, getattr(profile[s.name], point)) if s.name in profile else s for s in inputs)
        for profile in profiles
        for point in POINTS
    )
    return list(dict.fromkeys(found))


def _sampled(spec: TensorSpec, best: Sizes) -> TensorSpec:
    if holds_sizes(spec):
        return SampledSizes(name=spec.name, dtype=spec.dtype, shape=spec.shape, optional=spec.optional, elements=best)
    return dataclasses.replace(spec, shape=best)


def mark_sizes(model: ir.Model, profiles: Sequence[Profile]) -> None:
    """Mark in place the inputs that hold sizes: engines may depend on those that have values in all profiles."""
    for value in model.graph.inputs:
        if holds_sizes(TensorSpec.of(value)):
            value.meta[GIVEN_SIZES] = bool(profiles) and all(value.name in profile for profile in profiles)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PropagatedShapes:
    """A profile of all tensors of a graph, by name.

    Attributes:
        shapes: Of tensors with known dimensions.
        elements: Of known integer tensors of rank 0 or 1.
    """

    shapes: Mapping[str, ShapeRange]
    elements: Mapping[str, ShapeRange]


def follow(graph: Graph, profile: Profile, complete: Callable[[Graph], Graph] | None = None) -> PropagatedShapes:
    """Infer the profile of all tensors of a graph from that of its inputs.

    Args:
        graph: The cleaned graph.
        profile: Of its inputs.
        complete: Completes the shapes that ONNX's inference does not know in a copy whose inputs have fixed shapes.
    """
    sizes = {spec.name for spec in map(TensorSpec.of, graph.inputs) if holds_sizes(spec)}
    worlds: dict[str, ir.Model] = {}
    points: list[ir.Model] = []
    for point in POINTS:
        given = {name: getattr(one, point) for name, one in profile.items()}
        if repr(given) not in worlds:
            values = {name: given[name] for name in given.keys() & sizes}
            world = concrete_model(graph.model, {n: s for n, s in given.items() if n not in sizes}, values)
            worlds[repr(given)] = complete(Graph.of(world)).model if complete else world
        points.append(worlds[repr(given)])
    return PropagatedShapes(
        shapes=_joined([known_shapes(world) for world in points]),
        elements=_joined([known_integers(world) for world in points]),
    )


def with_best_shapes(graph: Graph, profile: Profile) -> Graph:
    """Declare in place the shapes that tensors have where inputs have the best ones of a profile, for estimates.

    Returns:
        A new view of the same model, whose sizes are counted anew.
    """
    known = follow(graph, profile).shapes
    for value in itertools.chain(graph.inputs, *(node.op.outputs for node in graph.nodes)):
        if value.name is not None and value.name in known:
            value.shape = ir.Shape(known[value.name].opt)
    return Graph.of(graph.model)


def segment_profile(segment: Segment, known: PropagatedShapes, number: int) -> Profile:
    """Return the profile that the engine of a segment is built for.

    Args:
        segment: The segment.
        known: The profile of all tensors of its graph.
        number: Number of the profile, for the message.

    Raises:
        UnknownShapeError: The shapes of some inputs do not follow from those of the model's inputs.
    """
    unknown = unknown_inputs(segment, known)
    if unknown:
        raise UnknownShapeError(
            unknown, f"The shape of {unknown[0]!r} does not follow from the inputs' shapes in profile {number}."
        )
    profile: dict[str, ShapeRange] = {}
    for spec in map(TensorSpec.of, segment.inputs):
        if holds_sizes(spec) and spec.name in known.elements:
            profile[spec.name] = known.elements[spec.name]
        elif spec.static_shape is None:
            profile[spec.name] = known.shapes[spec.name]
    return profile


def unknown_inputs(segment: Segment, known: PropagatedShapes) -> list[str]:
    """Return the inputs of a segment whose shapes are neither fixed nor in a profile of its graph."""
    specs = map(TensorSpec.of, segment.inputs)
    return [spec.name for spec in specs if spec.static_shape is None and spec.name not in known.shapes]


def _joined(found: Sequence[Mapping[str, Sizes]]) -> dict[str, ShapeRange]:
    """Join the sizes that are known at all three points with one rank; a size may fall where another rises."""
    low, best, high = found
    joined = {}
    for name, middle in best.items():
        sizes = [low.get(name, ()), middle, high.get(name, ())]
        if name in low and name in high and len({len(s) for s in sizes}) == 1:
            columns = list(zip(*sizes, strict=True))
            joined[name] = ShapeRange(min=tuple(map(min, columns)), opt=middle, max=tuple(map(max, columns)))
    return joined
