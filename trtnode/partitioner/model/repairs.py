"""Rewrites what the ONNX format forbids and ONNX Runtime reads all the same, to what ONNX Runtime makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Set

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.declared_sizes import data_field

_A = onnx.AttributeProto

VALUE_NAMES: Mapping[int, str] = {
    _A.TENSOR: "value",
    _A.SPARSE_TENSOR: "sparse_value",
    _A.FLOAT: "value_float",
    _A.FLOATS: "value_floats",
    _A.INT: "value_int",
    _A.INTS: "value_ints",
    _A.STRING: "value_string",
    _A.STRINGS: "value_strings",
}
"""Attributes of Constant by type. ONNX Runtime takes the first one, whatever its name is."""

OWN_DOMAINS = ("", "ai.onnx")

DATA_FIELDS = ("double_data", "float_data", "int32_data", "int64_data", "string_data", "uint64_data")


Fault = tuple[str, str]
"""A kind of fault, and the name of that which has it."""


def repair(proto: onnx.ModelProto, parts: protobuf_walk.Parts) -> list[str]:
    """Rewrite a model in place, so that it means to every reader what it means to ONNX Runtime.

    Returns:
        A sentence for each kind of fault that was found; none for a model as the format wants it.
    """
    faults = (
        *_drop_foreign_elements(parts),
        *_end_references(parts),
        *_repair_constants(proto.graph),
        *_drop_repeated_initializers(proto.graph),
    )
    return _sentences(faults)


def decode_names(proto: onnx.ModelProto) -> list[str]:
    """Replace the bytes that are no UTF-8 in names of nodes and values, in place. Returns sentences as ``repair``."""
    return _sentences(fault for graph in protobuf_walk.graphs(proto) for fault in _decode_names(graph))


def has_undecoded_names(graph: ir.Graph) -> bool:
    """Return whether some name in a graph is no UTF-8; protobuf gives it as bytes."""
    ops = list(graph)
    values = itertools.chain(graph.inputs, *[op.outputs for op in ops])
    names = ([op.name for op in ops], [op.doc_string for op in ops], [v.name for v in values], graph.initializers)
    return bytes in set(map(type, itertools.chain(*names)))


def _sentences(faults: Iterable[Fault]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for kind, name in faults:
        kinds.setdefault(kind, []).append(name)
    return [f"{kind} ({_listed(list(dict.fromkeys(names)))})." for kind, names in kinds.items()]


def _listed(names: list[str]) -> str:
    others = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(repr(name) for name in names[:3]) + others


def _drop_foreign_elements(parts: protobuf_walk.Parts) -> Iterator[Fault]:
    """Clear elements in another field than that of the tensor's type, on which other readers fail."""
    for tensor in parts.tensors():
        own = data_field(tensor.data_type)
        for field in DATA_FIELDS:
            if field != own and len(getattr(tensor, field)):
                tensor.ClearField(field)
                yield "Tensors have elements of another type, which are ignored", tensor.name


def _end_references(parts: protobuf_walk.Parts) -> Iterator[Fault]:
    """Clear references to attributes of a function outside of functions."""
    for node in parts.bearers[: parts.outside]:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                attribute.ClearField("ref_attr_name")
                yield (
                    "Attributes refer to a function but are in none; their own values hold",
                    f"{attribute.name} of {node.name or node.op_type}",
                )


def _decode_names(graph: onnx.GraphProto) -> Iterator[Fault]:
    for node in graph.node:
        if bytes in {type(node.name), type(node.doc_string), *map(type, node.input), *map(type, node.output)}:
            node.name, node.doc_string = _decoded(node.name), _decoded(node.doc_string)
            node.input[:] = [_decoded(name) for name in node.input]
            node.output[:] = [_decoded(name) for name in node.output]
            yield "Names are not written in UTF-8", node.name or node.op_type
    for values in (graph.initializer, graph.value_info, graph.input, graph.output):
        for value in values:
            if isinstance(value.name, bytes):
                value.name = _decoded(value.name)


def _decoded(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="backslashreplace")


def _repair_constants(graph: onnx.GraphProto) -> Iterator[Fault]:
    """Leave one Constant for each result, with no inputs and one attribute; the last wins, also over an initializer."""
    constants = {i: n for i, n in enumerate(graph.node) if n.op_type == "Constant" and n.domain in OWN_DOMAINS}
    last = {node.output[0]: index for index, node in constants.items() if node.output and node.output[0]}
    for node in filter(_is_ambiguous, constants.values()):
        yield "Constants have inputs, or more than one value, or one of another name; the first value holds", node.name
        _keep_first_value(node)
    dropped = constants.keys() - last.values()
    for index in sorted(dropped):
        name = next(iter(constants[index].output), "")
        kind = "Constants declare the same output; the last one holds" if name else "Constants have no output"
        yield kind, name
    inputs = [value.name for value in graph.input if value.name in last]
    held = (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
    taken = dict.fromkeys([*inputs, *(tensor.name for tensor in held if tensor.name in last)])
    yield from (("Constants declare the name of an initializer or input; the constant holds", name) for name in taken)
    if taken:
        _drop_initializers(graph, taken.keys())
    graph.initializer.extend(_tensor_of(name, constants[last[name]].attribute[0]) for name in inputs)
    for index in sorted([*dropped, *(last[name] for name in inputs)], reverse=True):
        del graph.node[index]


def _is_ambiguous(node: onnx.NodeProto) -> bool:
    several = bool(node.input) or len(node.attribute) > 1
    return several or any(a.type and VALUE_NAMES.get(a.type) != a.name for a in node.attribute)


def _keep_first_value(node: onnx.NodeProto) -> None:
    del node.input[:]
    del node.attribute[1:]
    for attribute in node.attribute:
        attribute.name = VALUE_NAMES.get(attribute.type, attribute.name)


def _drop_initializers(graph: onnx.GraphProto, names: Set[str]) -> None:
    dense = [index for index, tensor in enumerate(graph.initializer) if tensor.name in names]
    sparse = [index for index, tensor in enumerate(graph.sparse_initializer) if tensor.values.name in names]
    for index in reversed(dense):
        del graph.initializer[index]
    for index in reversed(sparse):
        del graph.sparse_initializer[index]


def _tensor_of(name: str, value: onnx.AttributeProto) -> onnx.TensorProto:
    """Return a constant's value as an initializer."""
    if value.type == _A.TENSOR:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(value.t)
        tensor.name = name
        return tensor
    dtype = np.float32 if value.type in (_A.FLOAT, _A.FLOATS) else None
    return onnx.numpy_helper.from_array(np.array(onnx.helper.get_attribute_value(value), dtype), name)


def _drop_repeated_initializers(graph: onnx.GraphProto) -> Iterator[Fault]:
    """Leave the last of initializers of the same name."""
    names = {tensor.name for tensor in graph.initializer}
    if len(names) == len(graph.initializer) and "" not in names:
        return
    seen: set[str] = set()
    for index in range(len(graph.initializer) - 1, -1, -1):
        name = graph.initializer[index].name
        if name in seen or not name:
            del graph.initializer[index]
            yield "Initializers have the same name or none; the last one holds", name
        seen.add(name)
