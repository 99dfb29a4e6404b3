"""Expands operators into the nodes of the functions by which ONNX defines them."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import operator
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import onnx
import onnx.inliner
import onnx_ir as ir

from trtnode.partitioner.cut.labels import Predicate, ReasonCode, Verdict, engine_nodes, label_nodes
from trtnode.partitioner.cut.levels import earliest_levels
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.graph.extraction import extract_model, single_node_model
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.loading import view_model
from trtnode.partitioner.model.new_values import new_names
from trtnode.partitioner.model.opset_versions import extends_operator
from trtnode.partitioner.model.values import subgraphs
from trtnode.partitioner.passes.clean_up import clean_up

logger = logging.getLogger(__name__)

EXPANDED_DOMAIN = "ai.trtnode.expanded"
"""Domain of a function while its body replaces its call."""

MAX_DEPTH = 8
"""Limit on functions within functions; ONNX's own need three levels."""


def is_defined_as_function(node: Node) -> bool:
    """Return whether ONNX defines a node's operator as a function of other operators."""
    if node.domain or not onnx.defs.has(node.op_type, node.opset, ""):
        return False
    schema = _schema(node)
    return bool(schema.has_function or schema.has_context_dependent_function)


def expand_functions(graph: Graph, supports: Predicate, options: PartitionOptions) -> Graph:
    """Expand unsupported nodes if the backend takes their whole function bodies and expansion joins segments.

    Args:
        graph: The cleaned graph. Its model is changed in place.
        supports: The backend's rule.
        options: The user's options. Nodes that they keep native are not expanded.

    Returns:
        The graph itself if expansion doesn't pay, else the cleaned result.

    Raises:
        UnknownOptionError: If ``options`` lists an operator that neither the model nor ONNX has.
    """
    labels = label_nodes(graph, supports, options)
    inside = engine_nodes(graph, labels)
    native = itertools.compress(graph.nodes, map(operator.not_, inside))
    refused = [n for n in native if labels[n.name].code != ReasonCode.USER_EXCLUDED]
    kinds = {n.key: n for n in refused}
    functions = {key: n for key, n in kinds.items() if is_defined_as_function(n)}
    whole = {key for key, n in functions.items() if _runs_whole(graph, n, supports, options)}
    candidates = [n.name for n in refused if n.key in whole]
    chosen = _joining(graph, set(itertools.compress(graph.names, inside)), candidates) if candidates else []
    if not chosen:
        return graph
    logger.info("Expanding %s, which joins segments", ", ".join(chosen))
    return _expand_deeply(graph, chosen, lambda view: label_nodes(view, supports, options))


def _joining(graph: Graph, taken: set[str], candidates: Sequence[str]) -> list[str]:
    """Return the candidates whose expansion saves segments; none if all together save none."""

    def segments(extra: Iterable[str]) -> int:
        wanted = taken.union(extra)
        inside = [node.name in wanted for node in graph.nodes]
        return max(itertools.compress(earliest_levels(graph.topology, inside), inside), default=0)

    chosen = list(candidates)
    fewest = segments(chosen)
    if fewest >= segments(()):
        return []
    for name in candidates:
        others = [other for other in chosen if other != name]
        if segments(others) == fewest:
            chosen = others
    return chosen


def _runs_whole(graph: Graph, node: Node, supports: Predicate, options: PartitionOptions) -> bool:
    """Return whether the backend takes every node of a function body, with refused functions expanded in turn."""
    narrowed = dataclasses.replace(  # other names belong to the model, and label_nodes would refuse them
        options, native_ops=tuple(op for op in options.native_ops if onnx.defs.has(op))
    )
    outputs = [v for v in node.op.outputs if v.name]
    alone = extract_model(graph, [node], inputs=node.reads, outputs=outputs)
    view = clean_up(view_model(alone, pathlib.Path(node.name)))
    names = [n.name for n in view.nodes]
    view = _expand_deeply(view, names, lambda v: label_nodes(v, supports, narrowed))
    return bool(view.nodes) and all(v.supported for v in label_nodes(view, supports, narrowed).values())


def _expand_deeply(graph: Graph, names: Collection[str], label: Callable[[Graph], dict[str, Verdict]]) -> Graph:
    """Expand nodes, then the unsupported functions in their bodies."""
    prefixes = tuple(f"{name}/" for name in names)
    for _ in range(MAX_DEPTH):
        if not names:
            break
        graph = expand_nodes(graph, names)
        labels = label(graph)
        inner = [node for node in graph.nodes if node.name.startswith(prefixes) and not labels[node.name].supported]
        names = [node.name for node in inner if is_defined_as_function(node)]
    return graph


def expand_nodes(graph: Graph, names: Collection[str]) -> Graph:
    """Replace nodes by the bodies of their functions, in place.

    Args:
        graph: The cleaned graph.
        names: Identities of nodes that ONNX defines as functions.

    Returns:
        The cleaned result. Names from a body begin with the identity of the replaced node and a slash.
        A node stays if ONNX can't write its body for its inputs.
    """
    for node in graph.nodes:
        if node.name in names:
            body = _body(node)
            if body is not None:
                _replace(graph.model.graph, node, body)
    return clean_up(graph.model)


def _body(node: Node) -> ir.Graph | None:
    """Return one level of the function's nodes as a graph with the names of the node's inputs and outputs."""
    model = single_node_model(node.op)
    call = model.graph.node[0]
    _write_defaults(call, node.opset)
    try:
        model.functions.append(_function(call, node))
        call.domain = EXPANDED_DOMAIN
        model.opset_import.append(onnx.OperatorSetIdProto(domain=EXPANDED_DOMAIN, version=1))
        inlined = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # onnx lets C++ exceptions out, mostly on unknown types
        logger.info("%s %r can't be expanded: %s", node.op_type, node.name, error)
        return None
    body = ir.from_proto(inlined).graph
    assert not any(op.domain == EXPANDED_DOMAIN for op in body)
    produced = {v.name for op in body for v in op.outputs}
    return body if all(v.name in produced for v in body.outputs) else None


def _write_defaults(call: onnx.NodeProto, opset: int) -> None:
    """Write a call's default attributes, because the function's body refers to them by name."""
    present = {attribute.name for attribute in call.attribute}
    for name, attribute in onnx.defs.get_schema(call.op_type, opset, "").attributes.items():
        if name not in present and attribute.default_value.type:
            call.attribute.append(attribute.default_value)


def _function(call: onnx.NodeProto, node: Node) -> onnx.FunctionProto:
    """Return the function that defines a node at the opset of its model."""
    schema = _schema(node)
    if schema.has_context_dependent_function:
        types = [_type_of(value).SerializeToString() for value in node.op.inputs]
        written = max(v for v in schema.context_dependent_function_opset_versions if v <= node.opset)
        body = schema.get_context_dependent_function_with_opset_version(written, call.SerializeToString(), types)
    else:
        body = schema.get_function_with_opset_version(node.opset)
    function = onnx.FunctionProto.FromString(body)
    written = function.opset_import[0].version
    if not all(extends_operator(op.op_type, node.opset, written) for op in function.node):
        raise ValueError(f"its body is written for opset {written}, and operators in it have changed since")
    function.domain, function.name, function.overload = EXPANDED_DOMAIN, call.op_type, call.overload
    function.opset_import[0].version = node.opset
    return function


def _schema(node: Node) -> Any:
    """Return the operator's schema. It is Any because onnx's stubs lack the members about functions."""
    return onnx.defs.get_schema(node.op_type, node.opset, "")


def _type_of(value: ir.Value | None) -> onnx.TypeProto:
    return onnx.TypeProto() if value is None else ir.serde.serialize_value(value).type


def _replace(graph: ir.Graph, node: Node, body: ir.Graph) -> None:
    outer = {v.name: v for v in node.op.inputs if v is not None}
    ops = list(body)
    for value in body.inputs:
        ir.convenience.replace_all_uses_with(value, outer[value.name])
    produced = {v.name: v for op in ops for v in op.outputs}
    wanted = [v for v in node.op.outputs if v.name]
    results = [produced[v.name] for v in wanted]
    for index, op in enumerate(ops):
        op.name = new_names(graph)(f"{node.name}/{op.op_type}_{index}")
    for value in _defined(ops):
        value.name = new_names(graph)(f"{node.name}/{value.name}")
    body.outputs.clear()
    body.remove(ops)
    ir.convenience.replace_nodes_and_values(graph, node.op, [node.op], ops, wanted, results)


def _defined(ops: Iterable[ir.Node]) -> Iterator[ir.Value]:
    """Yield the values of nodes and of their subgraphs."""
    for op in ops:
        yield from (v for v in op.outputs if v.name)
        for subgraph in subgraphs(op):
            yield from (*subgraph.inputs, *subgraph.initializers.values())
            yield from _defined(subgraph)
