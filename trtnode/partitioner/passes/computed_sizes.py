"""Measures the constants that a model computes from constants, without computing them.

Runtimes compute such constants when they load a model, whatever their size, and a hundred bytes can ask for terabytes.
"""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir

from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.model.declared_sizes import EXPORT, memory_bytes
from trtnode.partitioner.model.values import (
    count_elements,
    has_subgraphs,
    is_constant,
    read_values,
    serialize_imports,
    serialize_value,
    subgraphs,
)
from trtnode.partitioner.passes.clean_up import (
    FIRST_IR_WITH_DEFAULTS,
    functions_apart,
    inline_functions,
    lift_constants,
)
from trtnode.partitioner.passes.constant_folding import fold_constants
from trtnode.partitioner.passes.inlining import inline_calls
from trtnode.partitioner.passes.shape_inference import SMALL_INITIALIZER_ELEMENTS, infer_shapes
from trtnode.partitioner.passes.text_lengths import longest_result, makes_text

MAX_COMPUTED_BYTES = 2**30
"""Limit of all constants that a model of small weights computes."""

MAX_GROWTH = 16
"""The same for large weights, as a multiple of their size. Unpacking and transposing copies them a few times."""

KEEPING_OPS = frozenset(
    "Abs Cast DequantizeLinear Identity Neg ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Squeeze Transpose"
    " Unsqueeze".split()
)
"""Operators whose result has no more elements than the largest of their inputs."""

LARGEST_ELEMENT_BYTES = 16

ADVICE = "Compute them from the inputs, or store smaller ones."


def check_computed_sizes(model: ir.Model, path: pathlib.Path, *, inline: bool = False) -> None:
    """Refuse a model that asks for constants out of all proportion to its file.

    Args:
        model: The model, its functions included.
        path: Its file, for the message.
        inline: True inlines its functions in place, for callers that would inline them next. Else it isn't changed.

    Raises:
        ModelFileError: The constants that it computes are too large together, or can't be measured.
    """
    try:
        if inline:
            inline_functions(model)
        _check(model, path)
    except (ModelFileError, MemoryError):
        raise
    except Exception as error:  # onnx_ir lets exceptions of any type out
        raise ModelFileError(path, f"not a valid ONNX model: {error}.", EXPORT) from error


def _check(model: ir.Model, path: pathlib.Path) -> None:
    is_old = model.ir_version < FIRST_IR_WITH_DEFAULTS
    if is_old or model.functions or any(map(has_subgraphs, model.graph)):
        model = model.clone()
        lift_constants(model)
        inline_calls(model, functions_apart(model))
        _name_apart(model)
    graphs = (model.graph, *(function.graph for function in model.functions.values()))
    constants = {graph: list(_constant_nodes(graph, set())) for graph in graphs}
    if sum(map(_most_bytes, constants.values())) <= MAX_COMPUTED_BYTES:
        return
    parts = [_part_of(graph, ops) for graph, ops in constants.items()]
    if not any(len(part.graph) for part in parts):
        return
    weights = sum(_weight_bytes(graph, ops) for graph, ops in constants.items())
    limit = max(MAX_COMPUTED_BYTES, MAX_GROWTH * weights)
    total = 0.0
    texts: dict[ir.Value, float] = {}
    for op in itertools.chain.from_iterable(part.graph for part in parts):
        longest = longest_result(op, texts) if makes_text(op) else 0
        for value in op.outputs:
            texts[value] = longest = 0 if math.isinf(longest) else longest
            total += _size_bytes(value, longest)
            if total > limit:
                raise ModelFileError(path, _problem(op, value, longest, limit), ADVICE)


def _constant_nodes(graph: ir.Graph, constant: set[ir.Value | None]) -> Iterator[ir.Node]:
    """Yield the nodes of a graph and its subgraphs that read nothing but constants, each after what it reads."""
    constant.update((None, *filter(is_constant, graph.initializers.values())))
    for op in graph:
        if constant.issuperset(op.inputs) and constant.issuperset(read_values(op)):
            constant.update(op.outputs)
            yield op
        else:
            for subgraph in subgraphs(op) if op.attributes else ():
                yield from _constant_nodes(subgraph, constant)


def _most_bytes(constants: Sequence[ir.Node]) -> float:
    """Return a bound of the bytes that nodes compute; infinite where it takes shape inference to find one."""
    elements: dict[ir.Value, float] = {}
    total = 0.0
    for op in constants:
        if makes_text(op):
            return math.inf
        if _is_weight(op):
            elements[op.outputs[0]] = op.attributes["value"].as_tensor().size
        elif op.op_type in KEEPING_OPS and not op.domain:
            size = max((_elements(v, elements) for v in op.inputs if v is not None), default=0)
            elements[op.outputs[0]] = size
            total += size
        else:
            return math.inf
    return total * LARGEST_ELEMENT_BYTES


def _elements(value: ir.Value, known: Mapping[ir.Value, float]) -> float:
    return known.get(value, math.inf) if value.const_value is None else count_elements(value.const_value)


def _part_of(source: ir.Graph, constants: Sequence[ir.Node]) -> ir.Model:
    """Copy the nodes that compute constants into a model, and infer its shapes. Of large weights, types are copied."""
    ops = [op for op in constants if not _is_weight(op)]
    imports = serialize_imports(source.opset_imports)
    proto = onnx.ModelProto(ir_version=FIRST_IR_WITH_DEFAULTS, opset_import=imports)
    graph = proto.graph
    graph.name = "constants"
    graph.node.extend(ir.serde.serialize_node(op) for op in ops)
    inner = {v for op in ops for v in op.outputs}
    for value in dict.fromkeys(v for op in ops for v in read_values(op) if v not in inner):
        producer = value.producer()
        tensor = value.const_value if producer is None else producer.attributes["value"].as_tensor()
        assert tensor is not None
        if tensor.size <= SMALL_INITIALIZER_ELEMENTS:
            graph.initializer.append(ir.serde.serialize_tensor(tensor))
            graph.initializer[-1].name = value.name or ""
        else:
            kind = ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()))
            graph.input.append(serialize_value(kind))
    part = ir.from_proto(proto)
    for run in (lift_constants, infer_shapes, fold_constants, infer_shapes):
        run(part)
    return part


def _name_apart(model: ir.Model) -> None:
    """Give constants of different subgraphs different names."""
    ops = list(itertools.chain(model.graph.all_nodes(), *(f.all_nodes() for f in model.functions.values())))
    graphs = (model.graph, *(graph for op in ops for graph in subgraphs(op)))
    outputs = (v for op in ops for v in op.outputs)
    initializers = [v for graph in graphs for v in graph.initializers.values()]
    for number, value in enumerate((*outputs, *initializers)):
        value.name = f"constant:{number}"


def _is_weight(op: ir.Node) -> bool:
    return op.op_type == "Constant" and "value" in op.attributes


def _weight_bytes(graph: ir.Graph, constants: Iterable[ir.Node]) -> int:
    tensors = [v.const_value for v in graph.initializers.values()]
    tensors += [op.attributes["value"].as_tensor() for op in constants if _is_weight(op)]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _size_bytes(value: ir.Value, longest: float) -> float:
    """Return the memory of a value whose texts have so many bytes."""
    if value.dtype is None or value.shape is None or not value.shape.is_static():
        return longest
    shape = value.shape.numpy()
    return memory_bytes(int(value.dtype), shape) + (longest * math.prod(shape) if longest else 0)


def _problem(op: ir.Node, value: ir.Value, longest: float, limit: int) -> str:
    shape = f"[{', '.join(map(str, value.shape or ()))}]"
    name = f"{op.name!r} ({op.op_type})" if op.name else repr(op.op_type)
    texts = f" with texts of {longest:g} bytes" if longest else ""
    what = f"node {name} computes a constant of shape {shape}{texts}"
    return f"{what}; all constants that this model computes may take {limit} bytes."
