"""The TrtNode: an ONNX node that carries an engine, and a function that holds the nodes it replaced.

The node has domain ``ai.trtnode`` and its segment's name as ``overload``.
Its inputs are the segment's run-time inputs, then the initializers that the segment reads, defaults of inputs included.
The function of the same domain, name and overload makes the model complete without engines.
A runtime without TrtNodes runs the function's nodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.partitioner.compiled.references import (
    Weights,
    find_references,
    references_to_bytes,
    stored_bytes,
    without_ranges,
)
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.errors import CompiledModelError
from trtnode.partitioner.graph.extraction import constants_of, empty_model, serialize_constant
from trtnode.partitioner.graph.view import TRTNODE_DOMAIN, Graph, Node
from trtnode.partitioner.model.default_values import Interface, hold_defaults, inputs_with_defaults
from trtnode.partitioner.model.mapped_weights import MappedTensor, place_outside
from trtnode.partitioner.model.values import (
    all_nodes,
    is_constant,
    names_of,
    serialize_imports,
    serialize_inferred,
    serialize_value,
    tensor_of,
)

DOMAIN_VERSION = 1
OP_TYPE = "TrtNode"
MINIMUM_IR_VERSION = 10
"""The first IR version with function overloads."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedEngine:
    """Content of a TrtNode.

    Attributes:
        envelope: JSON that describes the engine and where it may run.
        engine: The engine bytes; None if they are in a file.
        engine_path: The file that they will be copied from, when the model is written.
        engine_file: Relative path of the sidecar; None if the bytes are inside.
        references: Ranges that the bytes are without, as `references_to_bytes` gives them; empty if they are whole.
        weights: What those ranges refer to.
    """

    envelope: str
    engine: bytes | memoryview | None = None
    engine_path: pathlib.Path | None = None
    engine_file: str | None = None
    references: bytes = b""
    weights: Weights = dataclasses.field(default_factory=dict)


def is_trtnode(op: ir.Node) -> bool:
    """Return whether a node is a TrtNode."""
    return op.domain == TRTNODE_DOMAIN and op.op_type == OP_TYPE


def is_compiled(model: ir.Model) -> bool:
    """Return whether a model has a TrtNode, in its graph or in a subgraph."""
    return TRTNODE_DOMAIN in model.opset_imports and any(map(is_trtnode, all_nodes(model.graph)))


def embed_engines(
    graph: Graph, segments: Sequence[Segment], engines: Mapping[str, EmbeddedEngine], *, outside: bool = False
) -> onnx.ModelProto:
    """Write a graph with each segment replaced by its TrtNode.

    Args:
        graph: The cleaned graph.
        segments: The segments in execution order.
        engines: Content of each TrtNode, by segment name.
        outside: True if large weights stay in their file, which the model names by its absolute path.

    Returns:
        A model with the source's inputs, outputs and initializers, and nodes in topological order.
    """
    proto = empty_model(graph.model)
    proto.ir_version = max(graph.model.ir_version, MINIMUM_IR_VERSION)
    if segments:
        proto.opset_import.append(onnx.OperatorSetIdProto(domain=TRTNODE_DOMAIN, version=DOMAIN_VERSION))
    compiled = proto.graph
    compiled.name = graph.model.graph.name or "graph"
    if graph.model.graph.doc_string:
        compiled.doc_string = graph.model.graph.doc_string
    interface = Interface.of(graph.model.graph)
    compiled.input.extend(serialize_value(v) for v in interface.inputs)
    compiled.output.extend(interface.outputs)
    defaults = {v.name or "": v for v in interface.inputs if v.const_value is not None}
    initializers = defaults | dict(graph.model.graph.initializers)
    compiled.initializer.extend(serialize_constant(v, outside=outside) for v in initializers.values())
    compiled.node.extend(_ordered_nodes(graph, segments, engines))
    compiled.value_info.extend(_boundary_types(graph, segments))
    proto.metadata_props.extend(
        onnx.StringStringEntryProto(key=k, value=v) for k, v in graph.model.metadata_props.items()
    )
    proto.functions.extend(ir.serde.serialize_function(f) for f in graph.model.functions.values())
    proto.functions.extend(_function(graph, segment) for segment in segments)
    return proto


def embedded_engines(op: ir.Node) -> list[EmbeddedEngine]:
    """Read all engines of a TrtNode: the first, then those of ``envelope.1``, ``envelope.2`` and so on.

    Raises:
        CompiledModelError: As ``embedded_engine``.
    """
    others = itertools.takewhile(
        lambda suffix: f"envelope{suffix}" in op.attributes, map(".{}".format, itertools.count(1))
    )
    return [embedded_engine(op, suffix) for suffix in ("", *others)]


def embedded_engine(op: ir.Node, suffix: str = "") -> EmbeddedEngine:
    """Read an engine of a TrtNode, the first by default.

    Raises:
        CompiledModelError: The node has no envelope, or neither an engine nor a sidecar's path.
    """
    name = op.overload or op.name or ""
    attributes = op.attributes
    try:
        envelope = attributes.get_string(f"envelope{suffix}")
        engine_file = attributes.get_string(f"engine_file{suffix}")
        tensor = attributes.get_tensor(held) if (held := f"engine{suffix}") in attributes else None
        ranges = attributes.get_tensor(held) if (held := f"engine_references{suffix}") in attributes else None
    except (TypeError, ValueError) as error:
        raise CompiledModelError(name, f"an attribute has the wrong type ({error})") from error
    if envelope is None:
        raise CompiledModelError(name, "it has no envelope")
    if tensor is None and engine_file is None:
        raise CompiledModelError(name, "it has neither an engine nor the path of a sidecar")
    mapped = isinstance(tensor, MappedTensor)
    return EmbeddedEngine(
        envelope=envelope,
        engine=None if tensor is None else tensor.numpy().data if mapped else tensor.tobytes(),
        engine_file=engine_file,
        references=ranges.tobytes() if ranges else b"",
        weights=_weights(enumerate(op.inputs)) if ranges else {},
    )


SIZES_DOMAIN = f"{TRTNODE_DOMAIN}.sizes"
"""Domain of functions that nothing calls: the nodes of TrtNodes without large weights, to measure results by."""


def view_with_engines(model: ir.Model) -> Graph:
    """View a compiled model as its engines were built, in place: the defaults that TrtNodes read are constants."""
    read = {value for op in model.graph if is_trtnode(op) for value in op.inputs}
    hold_defaults(model.graph, [value for value in inputs_with_defaults(model.graph) if value in read])
    return Graph.of(model)


def replaced_nodes(model: ir.Model, op: ir.Node) -> ir.Function | None:
    """Return the nodes that a TrtNode replaced, maybe without their weights; None where the model has neither."""
    whole = model.functions.get(op.op_identifier())
    return whole or model.functions.get((SIZES_DOMAIN, op.op_type, op.overload))


def segment_hash(graph: Graph, segment: Segment) -> str:
    """Return the hash of a segment's computation.

    Returns:
        sha256 of the function, serialized deterministically, then of each initializer's element type, shape and
        bytes, in input order.
    """
    return _hash(_function(graph, segment), constants_of(node.op for node in segment.nodes))


def replaced_hash(model: ir.Model, op: ir.Node) -> str | None:
    """Return the hash of the nodes that a TrtNode replaced, as they are in the compiled model now.

    Returns:
        The ``segment_hash`` of its segment without a name; None if the model has no function for the node.
    """
    function = model.functions.get(op.op_identifier())
    if function is None:
        return None
    proto = _function_proto("", function.inputs, function.outputs, list(function), function.opset_imports)
    return _hash(proto, [v for v in op.inputs if v is not None and is_constant(v)])


def _hash(function: onnx.FunctionProto, constants: Iterable[ir.Value]) -> str:
    digest = hashlib.sha256(function.SerializeToString(deterministic=True))
    for value in constants:
        tensor = tensor_of(value)
        digest.update(f"{tensor.dtype.name}{list(tensor.shape.numpy())}".encode())
        digest.update(stored_bytes(tensor).data)
    return digest.hexdigest()


def _ordered_nodes(
    graph: Graph, segments: Sequence[Segment], engines: Mapping[str, EmbeddedEngine]
) -> list[onnx.NodeProto]:
    """Return native nodes as soon as their inputs exist, then the next segment's TrtNode, in turns."""
    inside = {node.name: segment for segment in segments for node in segment.nodes}
    waiting = list(segments)
    available = set(graph.inputs)
    remaining = [node for node in graph.nodes if node.name not in inside]
    result: list[onnx.NodeProto] = []
    while waiting or remaining:
        ready, remaining = _split_ready(remaining, available)
        assert ready or waiting, f"{remaining[0].name!r} waits for what nothing produces"
        result.extend(ir.serde.serialize_node(node.op) for node in ready)
        if waiting:
            segment = waiting.pop(0)
            result.append(_trtnode(segment, engines[segment.name]))
            available.update(segment.outputs)
    return result


def _split_ready(nodes: list[Node], available: set[ir.Value]) -> tuple[list[Node], list[Node]]:
    ready, rest = [], []
    for node in nodes:
        if available.issuperset(node.reads):
            ready.append(node)
            available.update(node.op.outputs)
        else:
            rest.append(node)
    return ready, rest


def _trtnode(segment: Segment, content: EmbeddedEngine) -> onnx.NodeProto:
    constants = constants_of(node.op for node in segment.nodes)
    proto = onnx.NodeProto(
        op_type=OP_TYPE,
        domain=TRTNODE_DOMAIN,
        overload=segment.name,
        name=segment.name,
        input=names_of((*segment.inputs, *constants)),
        output=names_of(segment.outputs),
    )
    if content.engine is not None or content.engine_path is not None:
        proto.attribute.extend(_engine_attributes(content, _weights(enumerate(constants, len(segment.inputs)))))
    else:
        assert content.engine_file is not None
        proto.attribute.append(onnx.helper.make_attribute("engine_file", content.engine_file))
    proto.attribute.append(onnx.helper.make_attribute("envelope", content.envelope))
    return proto


def _weights(inputs: Iterable[tuple[int, ir.Value | None]]) -> Weights:
    return {index: v.const_value for index, v in inputs if v is not None and v.const_value is not None}


def _engine_attributes(content: EmbeddedEngine, weights: Weights) -> Iterator[onnx.AttributeProto]:
    """Yield an engine without the weights that the file holds anyway, and the references to them."""
    path = content.engine_path
    engine = np.memmap(path, np.uint8, "r") if path else np.frombuffer(content.engine or b"", np.uint8)
    references = list(find_references(engine, weights))
    tensor = onnx.TensorProto(name="engine", data_type=onnx.TensorProto.UINT8)
    if references or path is None:
        tensor.raw_data = without_ranges(engine, references)
        tensor.dims.append(len(tensor.raw_data))
    else:
        tensor.dims.append(len(engine))
        place_outside(tensor, str(path.absolute()), 0)
    yield onnx.AttributeProto(name="engine", type=onnx.AttributeProto.TENSOR, t=tensor)
    if references:
        data = np.frombuffer(references_to_bytes(references), np.uint8)
        yield onnx.helper.make_attribute("engine_references", onnx.numpy_helper.from_array(data, "engine_references"))


def _function(graph: Graph, segment: Segment) -> onnx.FunctionProto:
    domains = {"" if node.domain == "ai.onnx" else node.domain for node in segment.nodes}
    imports = {d: v for d, v in graph.model.graph.opset_imports.items() if d in domains}
    ops = [node.op for node in segment.nodes]
    return _function_proto(segment.name, (*segment.inputs, *constants_of(ops)), segment.outputs, ops, imports)


def _function_proto(
    overload: str,
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    ops: Iterable[ir.Node],
    imports: Mapping[str, int],
) -> onnx.FunctionProto:
    return onnx.FunctionProto(
        name=OP_TYPE,
        domain=TRTNODE_DOMAIN,
        overload=overload,
        input=names_of(inputs),
        output=names_of(outputs),
        node=[ir.serde.serialize_node(op) for op in ops],
        opset_import=serialize_imports(imports),
    )


def _boundary_types(graph: Graph, segments: Sequence[Segment]) -> list[onnx.ValueInfoProto]:
    declared = {v.name for v in (*Interface.of(graph.model.graph).inputs, *graph.outputs)}
    inside = {node.name for segment in segments for node in segment.nodes}
    native = (v for node in graph.nodes if node.name not in inside for v in node.op.outputs)
    boundary = (v for segment in segments for v in segment.outputs)
    typed = (v for v in (*native, *boundary) if v.name and v.type is not None and v.name not in declared)
    return [serialize_inferred(v) for v in typed]
