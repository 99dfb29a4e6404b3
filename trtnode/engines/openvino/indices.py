"""Indices that come from a request: OpenVINO's behaviour where they point outside a tensor, and what is done about it.

``tests/engines/openvino/test_indices.py`` holds the table. An operator that would leave its tensors gets a clamp in
front, in the engine alone. Inputs that reach an operator as they are, are compared with its range at each run as well;
a value outside is answered natively, which refuses it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.envelope import INDICES
from trtnode.engines.backends.protocols import Buffer
from trtnode.engines.errors import EngineRejectedError, OutOfRangeError
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.view import Node, TensorSpec, subgraph_nodes
from trtnode.partitioner.model.values import Dimension, dimensions, input_of


class Outside(enum.Enum):
    """OpenVINO's behaviour at an index outside its range."""

    REFUSED = "the run ends with an error"
    ANSWERED = "the run ends with a result that ONNX Runtime would refuse; no memory outside is touched"
    CLAMPED = "memory outside would be read or written, so a clamp stands in front"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Indices:
    """The input of an operator that holds indices.

    Attributes:
        at: Place of that input.
        into: Place of the input that they point into.
        outside: The library's behaviour.
        negative: True if they count from the end as well.
        length: True if they are lengths, so that the size itself is allowed.
    """

    at: int
    into: int = 0
    outside: Outside
    negative: bool = False
    length: bool = False


TABLE = {
    "GRU": Indices(at=4, outside=Outside.ANSWERED, length=True),
    "Gather": Indices(at=1, outside=Outside.ANSWERED, negative=True),
    "GatherElements": Indices(at=1, outside=Outside.REFUSED, negative=True),
    "GatherND": Indices(at=1, outside=Outside.CLAMPED, negative=True),
    "LSTM": Indices(at=4, outside=Outside.ANSWERED, length=True),
    "RNN": Indices(at=4, outside=Outside.ANSWERED, length=True),
    "ReverseSequence": Indices(at=1, outside=Outside.REFUSED, length=True),
    "RoiAlign": Indices(at=2, outside=Outside.CLAMPED),
    "RotaryEmbedding": Indices(at=3, into=1, outside=Outside.ANSWERED),
    "ScatterElements": Indices(at=1, outside=Outside.CLAMPED, negative=True),
    "ScatterND": Indices(at=1, outside=Outside.REFUSED, negative=True),
}
"""Operators that take indices or lengths from a request. OneHot has none outside, and answers as ONNX has it. Axes,
sizes, counts and amounts must be constants or follow from dimensions (``operators.CONSTANT_INPUTS``)."""

CLAMPED_OPS = frozenset(name for name, indices in TABLE.items() if indices.outside is Outside.CLAMPED)

MOVES = frozenset("Cast Expand Flatten Identity Reshape Squeeze Transpose Unsqueeze".split())
"""Operators whose result holds the values of their first input and no others."""

REORDERING = frozenset({"Expand", "Transpose"})
"""Those of them that don't keep the order of the values."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The range of an input of an engine that reaches an operator as indices.

    Attributes:
        input: Its place.
        sizes: The size that each column points into, or one size for all: a number, or input and axis.
        negative: As of ``Indices``.
        length: As of ``Indices``.
    """

    input: int
    sizes: tuple[int | tuple[int, int], ...]
    negative: bool
    length: bool

    def check(self, inputs: Sequence[Buffer], specs: Sequence[TensorSpec]) -> None:
        """Refuse values outside.

        Raises:
            OutOfRangeError: There is one.
        """
        sizes = [s if isinstance(s, int) else inputs[s[0]].shape[s[1]] for s in self.sizes]
        values = inputs[self.input]
        if not values.size:
            return
        if len(sizes) == 1:
            low, high = (-sizes[0] if self.negative else 0), sizes[0] - (not self.length)
            if values.min() >= low and values.max() <= high:
                return
            problem = f"{low} to {high}"
        else:
            columns, ends = values.reshape(-1, len(sizes)), np.array(sizes)
            if np.all(columns >= -ends) and np.all(columns < ends):
                return
            problem = f"those of a tensor of sizes {sizes}"
        name = specs[self.input].name
        raise OutOfRangeError("index_range", f"{name!r} holds an index outside the allowed ones, which are {problem}.")


def label_indices(node: Node) -> Verdict:
    """Refuse a node whose clamp would have no range: a size that its indices point into may be 0."""
    if node.op_type not in CLAMPED_OPS or _is_constant(node):
        return SUPPORTED
    graph = node.op.graph
    given = {d for v in (graph.inputs if graph else ()) for d in dimensions(v) or () if isinstance(d, str)}
    for size in _sizes(node):
        if not (size in given or (isinstance(size, int) and size > 0)):
            return Verdict(
                ReasonCode.UNCHECKED_INDEX,
                f"OpenVINO doesn't check the indices of {node.op_type}, and a size that they point into is unknown.",
            )
    return SUPPORTED


def may_be_empty(nodes: Sequence[Node], sizes: Collection[str]) -> bool:
    """Return whether no clamp gets an empty range where sizes of these names are 0."""
    inner = (one for node in nodes for one in (node, *subgraph_nodes(node)) if one.op_type in CLAMPED_OPS)
    return all(set(sizes).isdisjoint(_sizes(node)) for node in inner)


def index_options(nodes: Sequence[Node], inputs: Sequence[ir.Value]) -> dict[str, str]:
    """Return the option of an envelope with the bounds of an engine's inputs; none where nothing takes indices."""
    places = {value: place for place, value in enumerate(inputs)}
    taking = [one for node in nodes for one in (node, *subgraph_nodes(node)) if one.op_type in TABLE]
    bounds = [dataclasses.asdict(bound) for node in taking if (bound := _bound(node, places)) is not None]
    if not bounds and CLAMPED_OPS.isdisjoint(node.op_type for node in taking):
        return {}
    return {INDICES: json.dumps(bounds)}


def bounds_of(options: Mapping[str, str], inputs: Sequence[TensorSpec]) -> tuple[Bound, ...]:
    """Read the bounds in the options of an envelope, which has checked their types and inputs.

    Raises:
        EngineRejectedError: They don't fit the inputs.
    """
    return tuple(dict.fromkeys(_read_bound(fields, inputs) for fields in json.loads(options.get(INDICES, "[]"))))


def _read_bound(fields: Mapping[str, Any], inputs: Sequence[TensorSpec]) -> Bound:
    sizes = tuple(size if isinstance(size, int) else (size[0], size[1]) for size in fields["sizes"])
    for place, axis in (size for size in sizes if isinstance(size, tuple)):
        if not 0 <= axis < len(inputs[place].shape or ()):
            problem = f"the bounds of its indices can't be read (there is no axis {axis} of input {place})."
            raise EngineRejectedError("OpenVINO", problem)
    return Bound(input=fields["input"], sizes=sizes, negative=fields["negative"], length=fields["length"])


def _bound(node: Node, places: Mapping[ir.Value, int]) -> Bound | None:
    """Return the bound of the input that a node takes indices from; None where none is handed on as it is."""
    indices, sizes = TABLE[node.op_type], _sizes(node)
    source = _source(input_of(node.op, indices.at), columns=len(sizes))
    known = [_resolved(size, places) for size in sizes]
    if indices.outside is Outside.REFUSED or source is None or source not in places or not known or None in known:
        return None
    return Bound(
        input=places[source],
        sizes=tuple(size for size in known if size is not None),
        negative=indices.negative,
        length=indices.length,
    )


def _resolved(size: Dimension, places: Mapping[ir.Value, int]) -> int | tuple[int, int] | None:
    if isinstance(size, int) or size is None:
        return size
    shapes = ((place, dimensions(value) or ()) for value, place in places.items())
    return next(((place, shape.index(size)) for place, shape in shapes if size in shape), None)


def _source(value: ir.Value | None, *, columns: int) -> ir.Value | None:
    """Return the value whose elements another one has. Where columns differ in range, they must stay apart."""
    while value is not None and (op := value.producer()) is not None and op.op_type in MOVES and not op.domain:
        before = op.inputs[0]
        if before is None or before.dtype is None or not before.dtype.is_integer():
            break
        if columns > 1 and op.op_type in REORDERING:
            break
        value = before
    return value


def _sizes(node: Node) -> tuple[Dimension, ...]:
    """Return the sizes that the indices of a node point into: one for all, or one a column."""
    data = input_of(node.op, TABLE[node.op_type].into)
    shape = None if data is None else dimensions(data)
    if not shape:
        return (None,)
    if node.op_type == "GatherND":
        last = (dimensions(node.op.inputs[1]) or (None,))[-1] if node.op.inputs[1] is not None else None
        first = node.op.attributes.get_int("batch_dims", 0) or 0
        return shape[first : first + last] if isinstance(last, int) else (None,)
    axis = node.op.attributes.get_int("axis", 0) if node.op_type in ("Gather", "ScatterElements") else 0
    return (shape[axis or 0],)


def _is_constant(node: Node) -> bool:
    value = input_of(node.op, TABLE[node.op_type].at)
    return value is not None and value.const_value is not None
