"""Folds shape arithmetic: values that a graph computes from constants and known dimensions alone.

Each element of a tensor is known or unknown by itself, so that one unknown dimension doesn't hide the others.
For ``x`` of shape ``[N, 3, 8, 8]``, ``Shape(x)`` is ``[?, 3, 8, 8]``, and ``Gather(Shape(x), 2)`` is the constant 8.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from trtnode.partitioner.graph.extraction import single_node_model
from trtnode.partitioner.model.default_values import held_defaults
from trtnode.partitioner.model.values import count_elements, dimensions, is_constant, tensor_of

MAX_ELEMENTS = 1024
"""Limit of a folded result. Shape arithmetic is small; a larger result would only enlarge the file."""

UNKNOWN = None
"""An element whose value depends on the request."""

Elements = np.ndarray
"""An object array of Python integers, or UNKNOWN."""

EXACT_OPS = frozenset(
    "Abs Add And Cast Ceil Concat ConstantOfShape Div Equal Expand Floor Gather Greater GreaterOrEqual Less LessOrEqual"
    " Max Min Mod Mul Neg Not Or Reshape Shape Size Slice Sqrt Squeeze Sub Transpose Unsqueeze Where".split()
)
"""Operators with one right answer for each input, so that folding can't differ from computing at run time."""

BROADCASTING_OPS = frozenset(
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Or Sub Where".split()
)
"""Those whose inputs' shapes are joined to a larger one."""

EXACT_INTEGER_OPS = frozenset("Range ReduceMax ReduceMin ReduceProd ReduceSum".split())
"""The same for integers only. On floats, runtimes differ in the order of additions and in NaN."""

NUMPY_OPS: Mapping[str, np.ufunc] = {"Add": np.add, "Mul": np.multiply, "Neg": np.negative, "Sub": np.subtract}
"""Those that ``onnx.reference`` gives to one function of numpy. Its import takes as long as a hundred of them."""

INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)
"""Element types of shapes."""


def fold_constants(model: ir.Model) -> None:
    """Replace nodes whose result is known by initializers, in place.

    ``PARTIAL_RULES`` propagates single elements of integer tensors through some operators.
    ``onnx.reference`` computes ``EXACT_OPS``, and ``EXACT_INTEGER_OPS`` on integers, if all inputs are constants.
    A graph that holds defaults stays as it is, because requests may replace them.
    """
    if held_defaults(model.graph):
        return
    known: dict[ir.Value, Elements] = {}
    for op in list(model.graph):
        if op.op_type not in FOLDED_OPS or op.domain or len(op.outputs) != 1:
            continue
        result = _partial(op, known)
        if result is not None:
            known[op.outputs[0]] = result
        folded = _whole(op, result)
        if folded is not None:
            _replace(model.graph, op, folded)


def _partial(op: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    rule = PARTIAL_RULES.get(op.op_type)
    if rule is None:
        return None
    with contextlib.suppress(ValueError, IndexError, TypeError):  # an ill-formed node stays as it is
        return rule(op, [_elements(v, known) for v in op.inputs])
    return None


def _whole(op: ir.Node, elements: Elements | None) -> np.ndarray | None:
    dtype = op.outputs[0].dtype
    if elements is not None and dtype is not None and all(e is not UNKNOWN for e in elements.flat):
        return elements.astype(dtype.numpy()) if elements.size <= MAX_ELEMENTS else None
    exact = op.op_type in EXACT_OPS or (op.op_type in EXACT_INTEGER_OPS and dtype in INTEGERS)
    if not exact or not all(v is None or _is_small_constant(v) for v in op.inputs):
        return None
    return None if _grows(op) else _evaluate(op)


def _grows(op: ir.Node) -> bool:
    """Return whether small inputs give a large result, which must not even be computed."""
    try:
        return _most_elements(op) > MAX_ELEMENTS
    except (ValueError, IndexError, TypeError):  # an ill-formed node stays as it is
        return True


def _most_elements(op: ir.Node) -> float:
    """Return a bound of the result's elements; 0 where they are about as many as those of the inputs."""
    arrays = [tensor_of(v).numpy() for v in op.inputs if v is not None]
    if op.op_type == "Range":
        start, limit, delta = (array.item() for array in arrays)
        return float((limit - start) / delta) if delta else math.inf
    if op.op_type == "ConstantOfShape":
        return int(math.prod(arrays[0].tolist()))
    if op.op_type == "Concat":
        return sum(array.size for array in arrays)
    if op.op_type == "Expand":
        return _joined_elements([arrays[0].shape, arrays[1].reshape(-1).tolist()])
    return _joined_elements([array.shape for array in arrays]) if op.op_type in BROADCASTING_OPS else 0


def _joined_elements(shapes: Sequence[Sequence[int]]) -> int:
    aligned = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return math.prod(max(sizes) for sizes in aligned)


def _evaluate(op: ir.Node) -> np.ndarray | None:
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):  # runtimes differ there
            result = _computed(op)
    except Exception:  # the reference lacks the operator or refuses the node, which then stays
        return None
    fits = isinstance(result, np.ndarray | np.generic) and result.size <= MAX_ELEMENTS
    return np.asarray(result) if fits else None


def _computed(op: ir.Node) -> Any:
    values = list(dict.fromkeys(v for v in op.inputs if v is not None))
    function = None if op.attributes else NUMPY_OPS.get(op.op_type)  # old versions have attributes
    if function is not None and len(op.inputs) == function.nin and len({value.dtype for value in values}) == 1:
        return function(*(tensor_of(v).numpy() for v in op.inputs))
    feeds = {str(number): tensor_of(value).numpy() for number, value in enumerate(values)}
    (result,) = _evaluator(_without_names(op, values)).run(None, feeds)
    return result


def _without_names(op: ir.Node, values: Sequence[ir.Value]) -> bytes:
    """Return a node's model with numbers for names, so that equal nodes have equal models."""
    proto = single_node_model(op)
    numbers = {value.name: str(number) for number, value in enumerate((*values, *op.outputs))}
    (node,) = proto.graph.node
    node.ClearField("name")
    node.input[:] = [numbers.get(name, "") for name in node.input]
    node.output[:] = [numbers.get(name, "") for name in node.output]
    for info in (*proto.graph.input, *proto.graph.output):
        info.name = numbers[info.name]
    return proto.SerializeToString(deterministic=True)


@functools.lru_cache(maxsize=64)
def _evaluator(model: bytes) -> ReferenceEvaluator:
    return ReferenceEvaluator(model)


def _replace(graph: ir.Graph, op: ir.Node, array: np.ndarray) -> None:
    result = op.outputs[0]
    if result.is_graph_output() or result.dtype in (None, ir.DataType.STRING):
        return
    if ir.DataType.from_numpy(array.dtype) != result.dtype:
        return
    tensor = ir.Tensor(array, name=result.name)
    constant = ir.Value(name=result.name, type=ir.TensorType(result.dtype), shape=tensor.shape, const_value=tensor)
    ir.convenience.replace_all_uses_with(result, constant)
    graph.remove(op, safe=True)
    graph.register_initializer(constant)


def _is_small_constant(value: ir.Value) -> bool:
    tensor = value.const_value
    return is_constant(value) and tensor is not None and count_elements(tensor) <= MAX_ELEMENTS


def _elements(value: ir.Value | None, known: dict[ir.Value, Elements]) -> Elements | None:
    if value is None or value in known:
        return None if value is None else known[value]
    if _is_small_constant(value) and value.dtype in INTEGERS:
        return tensor_of(value).numpy().astype(object)
    return None


Inputs = Sequence[Elements | None]


def _shape(op: ir.Node, _: Inputs) -> Elements | None:
    value = op.inputs[0]
    shape = None if value is None or _is_measured_alone(value) else dimensions(value)
    if shape is None:
        return None
    start, end = op.attributes.get_int("start", 0), op.attributes.get_int("end", len(shape))
    sizes = [d if isinstance(d, int) else UNKNOWN for d in shape]
    return np.array(sizes[slice(start, end)], dtype=object)


def _is_measured_alone(value: ir.Value) -> bool:
    """Return whether only shapes are read of a node's result. The node would go, with the sizes that it refuses."""
    producer = value.producer()
    is_read = value.is_graph_output() or any(op.op_type not in ("Shape", "Size") for op in value.consumers())
    if producer is None or is_read:
        return False
    return any(v is not None and (v.shape is None or not v.shape.is_static()) for v in producer.inputs)


def _gather(op: ir.Node, inputs: Inputs) -> Elements | None:
    data, indices = inputs
    if data is None or indices is None or op.attributes.get_int("axis", 0) != 0:
        return None
    if indices.size * math.prod(data.shape[1:]) > MAX_ELEMENTS:
        return None
    return np.asarray(np.take(data, indices.astype(np.int64), axis=0), dtype=object)


def _concat(_: ir.Node, inputs: Inputs) -> Elements | None:
    parts = [part for part in inputs if part is not None and part.ndim == 1]
    small = sum(part.size for part in parts) <= MAX_ELEMENTS
    return np.concatenate(parts) if small and len(parts) == len(inputs) else None


def _slice(_: ir.Node, inputs: Inputs) -> Elements | None:
    data, *bounds = inputs
    if data is None or data.ndim != 1 or not bounds or any(b is None or b.size != 1 for b in bounds):
        return None
    start, end, *rest = (int(b.item()) for b in bounds if b is not None)
    step = rest[1] if len(rest) > 1 else 1
    return data[start:end:step] if step > 0 else None


def _reshaped(op: ir.Node, inputs: Inputs) -> Elements | None:
    """Propagate Squeeze and Unsqueeze between a scalar and a vector of one element."""
    data = inputs[0]
    if data is None or data.size != 1:
        return None
    if op.op_type == "Squeeze":
        return data.reshape(()) if data.ndim <= 1 else None
    axes = inputs[1] if len(inputs) > 1 else np.array(op.attributes.get_ints("axes"))
    return data.reshape((1,)) if data.ndim == 0 and axes is not None and axes.size == 1 else None


def _cast(op: ir.Node, inputs: Inputs) -> Elements | None:
    to = op.attributes.get_int("to", 0)
    if inputs[0] is None or to not in INTEGERS:
        return None
    limits = np.iinfo(np.int32 if to == ir.DataType.INT32 else np.int64)
    fitting = [e if e is not UNKNOWN and limits.min <= e <= limits.max else UNKNOWN for e in inputs[0].flat]
    return np.array(fitting, dtype=object).reshape(inputs[0].shape)


PARTIAL_RULES: dict[str, Callable[[ir.Node, Inputs], Elements | None]] = {
    "Shape": _shape,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Squeeze": _reshaped,
    "Unsqueeze": _reshaped,
    "Cast": _cast,
}
"""Rules that compute an operator's elements from its inputs', some of which may be unknown."""

FOLDED_OPS = EXACT_OPS | EXACT_INTEGER_OPS | PARTIAL_RULES.keys()
