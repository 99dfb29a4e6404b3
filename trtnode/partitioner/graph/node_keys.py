"""Keys of nodes by everything that decides whether an engine library takes them: equal keys get equal verdicts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.graph.qdq import DEQUANTIZE, QUANTIZE, describe_quantization
from trtnode.partitioner.model.values import GIVEN_SIZES, SHAPE_DTYPES, dimensions, has_subgraphs, input_of, is_constant

EXACT_FLOAT32 = 2**24
"""float32 holds every integer below."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class NodeKey:
    """Key of all nodes of a graph that an engine library can't tell apart. There is one object for each such set.

    Attributes:
        parts: Operator, domain, opset and attributes; of each input and output the kind, element type and rank.
            Also which dimensions are fixed or zero, and which values are constant, shape arithmetic or given sizes.
            Also the bits that constant integers need, and what ``DETAILS`` gives for some operators.
            Names and weights are not in it.
        opset: Version of the operator's domain that the nodes mean.
    """

    parts: Hashable
    opset: int

    @property
    def digest(self) -> str:
        """Hash of the parts, equal in every process for nodes without subgraphs."""
        return hashlib.sha256(repr(self.parts).encode()).hexdigest()


class NodeKeys:
    """Makes the keys of a graph's nodes. The caller must ask for them in topological order.

    Attributes:
        shape_arithmetic: Values so far that are computed from dimensions, constants and ``GIVEN_SIZES`` alone.
    """

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        self._opset_imports = opset_imports
        self._made: dict[Hashable, NodeKey] = {}
        self._plain: dict[Hashable, NodeKey] = {}
        self._kinds: dict[ir.Value | None, Hashable] = {}
        self._kinds_of: dict[Hashable, Hashable] = {}
        self._same_kinds: dict[Hashable, Hashable] = {}
        self.shape_arithmetic: set[ir.Value] = set()
        self._given: set[ir.Value] = set()

    def of(self, op: ir.Node) -> NodeKey:
        """Return the key of a node."""
        self._follow_shapes(op)
        known = self._kinds
        inputs = tuple([known.get(value) or self._kind(value) for value in op.inputs])
        outputs = tuple([self._kind(value) for value in op.outputs])
        op_type = op.op_type
        if op.attributes or op_type in DETAILS:
            return self._full(op, inputs, outputs)
        plain = (op_type, op.domain, op.version, *map(id, inputs), None, *map(id, outputs))
        key = self._plain.get(plain)
        if key is None:
            key = self._plain[plain] = self._full(op, inputs, outputs)
        return key

    def _full(self, op: ir.Node, inputs: tuple[Hashable, ...], outputs: tuple[Hashable, ...]) -> NodeKey:
        alone = id(op) if has_subgraphs(op) else None  # equal to no other node
        attributes = tuple(sorted((name, _attribute_key(a)) for name, a in op.attributes.items()))
        detail = DETAILS[op.op_type](op) if op.op_type in DETAILS else None
        opset = op.version or self._opset_imports.get(op.domain, 0)
        parts = (op.op_type, op.domain, opset, attributes, inputs, outputs, alone, detail)
        return self._made.setdefault(parts, NodeKey(parts, opset))

    def _kind(self, value: ir.Value | None) -> Hashable:
        if value is None or not value.name:
            return None
        known = self._kinds.get(value)
        if known is None:
            kind, shape = value.type, value.shape
            dtype = None if kind is None else kind.dtype
            given = value.producer() is None
            sized = (given or dtype in SHAPE_DTYPES) and self._size(value)
            constant = _constant_key(value) if given and value.is_initializer() else None
            traits = (type(kind), dtype, None if shape is None else shape.dims, constant, sized)
            known = self._kinds_of.get(traits)
            if known is None:
                known = self._kinds_of[traits] = self._kind_of(*traits)
            self._kinds[value] = known
        return known

    def _size(self, value: ir.Value) -> Hashable:
        """Return ``given`` for given sizes, else whether a value is shape arithmetic."""
        return "given" if self._is_given(value) else value in self.shape_arithmetic

    def _kind_of(self, kind: type, dtype: Hashable, dims: Sequence[object] | None, *rest: Hashable) -> Hashable:
        """Return the kind of values with these traits, one object for all equal ones."""
        pattern = None if dims is None else tuple(map(_dimension_key, dims))
        key = (kind.__name__, dtype, pattern, *rest)
        return self._same_kinds.setdefault(key, key)

    def _follow_shapes(self, op: ir.Node) -> None:
        sizes = [v for v in op.outputs if v.dtype in SHAPE_DTYPES]
        if not sizes:
            return
        inputs = [] if op.op_type in ("Shape", "Size") else [v for v in op.inputs if v is not None]
        given = {v for v in inputs if self._is_given(v)}
        if all(v.const_value is not None or v in self.shape_arithmetic or v in given for v in inputs):
            self.shape_arithmetic.update(sizes)
            self._given.update(sizes if given else ())

    def _is_given(self, value: ir.Value) -> bool:
        return value in self._given or (value.is_graph_input() and bool(value.meta.get(GIVEN_SIZES)))


def _dimension_key(dimension: object) -> str:
    if not isinstance(dimension, int):
        return "?"
    return "0" if dimension == 0 else "n"


def _constant_key(value: ir.Value) -> Hashable:
    if not is_constant(value) or value.const_value is None:
        return "default"
    if value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return "constant"
    array = value.const_value.numpy()
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    limits = np.iinfo(np.int32)
    return (limits.min <= low and high <= limits.max, low > -EXACT_FLOAT32 and high < EXACT_FLOAT32)


def _attribute_key(attribute: ir.Attr) -> str:
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return ""
    if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref():
        tensor = attribute.as_tensor()
        texts = tensor.dtype == ir.DataType.STRING
        content = repr(tensor.numpy().tolist()).encode() if texts else tensor.tobytes()
        return f"{tensor.dtype} {tensor.shape} {hashlib.sha256(content).hexdigest()}"
    return f"{attribute.type} {attribute.value!r}"


def _constant_input(index: int) -> Callable[[ir.Node], Hashable]:
    def content(op: ir.Node) -> Hashable:
        value = input_of(op, index)
        return None if value is None or value.const_value is None else value.const_value.tobytes()

    return content


def _origin(op: ir.Node) -> Hashable:
    value = input_of(op, 0)
    producer = None if value is None or value.dtype != ir.DataType.UINT8 else value.producer()
    return None if producer is None else producer.op_type


def _last_dimension(op: ir.Node) -> Hashable:
    shape = None if not op.inputs or op.inputs[0] is None else dimensions(op.inputs[0])
    return shape[-1] if shape else None


DETAILS: Mapping[str, Callable[[ir.Node], Hashable]] = {
    "BitShift": _constant_input(1),
    "Cast": _origin,
    DEQUANTIZE: describe_quantization,
    "Dropout": _constant_input(2),
    QUANTIZE: describe_quantization,
    "STFT": _last_dimension,
    "Shape": _origin,
    "TopK": _constant_input(1),
}
"""Further parts that a library's table reads, by operator: small constants, the other end of a tensor, sizes."""
