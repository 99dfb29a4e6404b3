"""Chains of nodes that move no element become one Reshape, or nothing.

Exporters write Unsqueeze behind Squeeze behind Transpose, and Concat or Split of a single part, above all around
recurrent layers. Each is a node that ONNX Runtime starts; a small network spends its time on that.

Proof. Squeeze, Unsqueeze, Flatten, Reshape, Concat of one part and Split into one part keep the elements and their
order (operator specifications). So does Transpose, if it keeps the order of the dimensions that are larger than 1: an
element's position in memory is the sum of index times stride over them, and dimensions of size 1 have index 0. A chain
of such nodes gives the elements of its source, in order, in the shape of its result. So does one Reshape to this shape,
with -1 for a dimension that varies: the number of elements settles it where the others aren't 0. Where both shapes are
the same, the source is the result.

A node goes only where it runs on all sizes: it would refuse others, which one Reshape may answer. So the rank is known,
and axes are axes of it. Squeeze needs a size that is 1, Split the known size of its part, and Reshape known sizes that
the constants of its shape divide. The last Reshape may need more, where the new one has its shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.model.values import ONNX_DOMAINS, Dimension, dimensions, input_of
from trtnode.partitioner.passes.rewrites.replacement import Replacement, Writer

VIEWS = ("Squeeze", "Unsqueeze", "Flatten", "Reshape")

FIRST_RESHAPE_WITH_INPUT = 5

Sizes = Sequence[Dimension]


def find_reshapes(graph: ir.Graph) -> Iterator[Replacement]:
    """Find the last node of each such chain first. What nobody reads any more is left to be removed."""
    for op in reversed(list(graph)):
        place = _place(op) if _moves_nothing(op) and _is_read(op.outputs[0]) else None
        if place is not None:
            yield place


def _place(op: ir.Node) -> Replacement | None:
    chain, source = _chain(op)
    result = op.outputs[0]
    if not _always_runs(op) and not _is_checked_anew(op, result):
        return None
    if _same_shape(chain, source, result) and not result.is_graph_output():
        return Replacement((op,), lambda: _pass_on(op, source))
    shape = _shape_of(result)
    opset = 0 if op.graph is None else op.graph.opset_imports.get("", 0)
    if len(chain) < 2 or shape is None or opset < FIRST_RESHAPE_WITH_INPUT:
        return None

    def apply() -> None:
        writer = Writer((op,), "reshaped")
        writer.finish(writer.call("Reshape", source, writer.constant(shape, ir.DataType.INT64), like=result))

    return Replacement((op,), apply)


def _pass_on(op: ir.Node, source: ir.Value) -> None:
    assert op.graph is not None
    ir.convenience.replace_all_uses_with(op.outputs[0], source)
    op.graph.remove(op, safe=True)


def _chain(op: ir.Node) -> tuple[Sequence[ir.Node], ir.Value]:
    """Return a node and those before it that move nothing, and the value that the first one reads."""
    chain = [op]
    while True:
        source = chain[-1].inputs[0]
        assert source is not None
        producer = source.producer()
        if producer is None or not (_moves_nothing(producer) and _always_runs(producer)):
            return chain, source
        chain.append(producer)


def _moves_nothing(op: ir.Node) -> bool:
    if op.domain not in ONNX_DOMAINS or not op.inputs or op.inputs[0] is None:
        return False
    if op.op_type == "Transpose":
        return _keeps_order(op)
    return op.op_type in VIEWS or _is_alone(op)


def _always_runs(op: ir.Node) -> bool:
    """Return whether a node that moves nothing runs on inputs of all sizes that its input may have."""
    sizes = dimensions(op.inputs[0]) if op.inputs[0] is not None else None
    return sizes is not None and RUNS[op.op_type](op, sizes)


def _squeezes(op: ir.Node, sizes: Sizes) -> bool:
    axes = _constants(op, "axes")
    return _are_axes(axes, len(sizes)) and all(sizes[axis] == 1 for axis in axes or ())


def _unsqueezes(op: ir.Node, sizes: Sizes) -> bool:
    axes = _constants(op, "axes")
    return _are_axes(axes, len(sizes) + len(axes or ()))


def _splits(op: ir.Node, sizes: Sizes) -> bool:
    axis = op.attributes.get_int("axis", 0)
    is_split = len(op.inputs) > 1 or "split" in op.attributes
    return _are_axes([axis], len(sizes)) and (not is_split or _constants(op, "split") == [sizes[axis]])


def _are_axes(axes: Sequence[int] | None, rank: int) -> bool:
    """Return whether numbers are different axes of a rank."""
    inside = axes is not None and all(-rank <= axis < rank for axis in axes)
    return inside and len({axis % rank for axis in axes or ()}) == len(axes or ())


def _reshapes_all(op: ir.Node, sizes: Sizes) -> bool:
    """Return whether the known sizes of an input hold the factors that a constant shape asks for."""
    shape = _constants(op, "shape")
    known = [size for size in sizes if isinstance(size, int)]
    if shape is None or (0 in shape and len(known) < len(sizes)):
        return False
    if not op.attributes.get_int("allowzero", 0):
        shape = [known[place] if size == 0 and place < len(known) else size for place, size in enumerate(shape)]
    asked = math.prod(size for size in shape if size != -1)
    if -1 in shape:
        return asked != 0 and math.prod(known) % asked == 0
    return len(known) == len(sizes) and asked == math.prod(known)


def _is_checked_anew(op: ir.Node, result: ir.Value) -> bool:
    """Return whether the one Reshape has the shape of the last, and so refuses the same sizes."""
    shape = _shape_of(result) if op.op_type == "Reshape" else None
    return shape is not None and _constants(op, "shape") == shape.tolist()


def _constants(op: ir.Node, name: str) -> list[int] | None:
    """Return the integers of the second input, or of an attribute of older versions; None where they vary."""
    second = input_of(op, 1)
    if second is not None:
        return None if second.const_value is None else second.const_value.numpy().ravel().tolist()
    return list(op.attributes.get_ints(name, ())) or None


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _is_alone(op: ir.Node) -> bool:
    """Return whether a node is a Concat of one part or a Split into one."""
    return (op.op_type == "Concat" and len(op.inputs) == 1) or (op.op_type == "Split" and len(op.outputs) == 1)


def _keeps_order(op: ir.Node) -> bool:
    sizes = dimensions(op.inputs[0]) if op.inputs[0] is not None else None
    if sizes is None:
        return False
    order = op.attributes.get_ints("perm", tuple(reversed(range(len(sizes)))))
    long = [axis for axis in order if axis < len(sizes) and sizes[axis] != 1]
    return sorted(order) == list(range(len(sizes))) and long == sorted(long)


def _same_shape(chain: Sequence[ir.Node], source: ir.Value, result: ir.Value) -> bool:
    settled = _shape_of(result) is not None and dimensions(source) == dimensions(result)
    return settled or all(map(_is_alone, chain))


def _shape_of(result: ir.Value) -> np.ndarray | None:
    """Return the shape to give to Reshape, int64[rank]; None where it isn't known well enough."""
    sizes = dimensions(result)
    if sizes is None or not isinstance(result.type, ir.TensorType):
        return None
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) - 1 or math.prod(known) == 0:
        return None
    return np.array([size if isinstance(size, int) else -1 for size in sizes], np.int64)


RUNS: Mapping[str, Callable[[ir.Node, Sizes], bool]] = {
    "Concat": lambda op, sizes: _are_axes([op.attributes.get_int("axis", 1)], len(sizes)),
    "Flatten": lambda op, sizes: -len(sizes) <= op.attributes.get_int("axis", 1) <= len(sizes),
    "Reshape": _reshapes_all,
    "Split": _splits,
    "Squeeze": _squeezes,
    "Transpose": lambda op, _: _keeps_order(op),
    "Unsqueeze": _unsqueezes,
}
"""By operator, whether a node runs on all inputs of these sizes."""
