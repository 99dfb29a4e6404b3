"""Puts the nodes of model-local functions where the functions are called, in time linear in the nodes that result.

Names are those that onnx_ir's own pass gives. That pass counts the suffixes of a name anew at each clash, so its time
is quadratic in the calls of a function.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from trtnode.partitioner.model.values import subgraphs


def inline_calls(model: ir.Model, apart: Collection[ir.OperatorIdentifier] = ()) -> None:
    """Replace calls of functions by their nodes, in place, and drop functions that nothing calls any more.

    Args:
        model: The model. No function calls itself (``model.declared_sizes``).
        apart: Functions that stay. Calls within them are replaced too.

    Raises:
        ValueError: A call doesn't fit its function.
    """
    inliner = _Inliner({key: f for key, f in model.functions.items() if key not in apart}, model.opset_imports)
    for graph in (model.graph, *(model.functions[key].graph for key in model.functions if key in apart)):
        inliner.inline_in(graph)
    common.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]


class _Names:
    """Names in use. Each remembers the last suffix that was tried for it."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def add(self, name: str | None) -> None:
        if name is not None:
            self._last.setdefault(name, 1)

    def unused(self, name: str) -> str:
        """Return a name with the first suffix that no other has, and take it."""
        if name in self._last:
            suffixes = itertools.count(self._last[name] + 1)
            self._last[name] = next(i for i in suffixes if f"{name}_{i}" not in self._last)
            name = f"{name}_{self._last[name]}"
        self._last[name] = 1
        return name


class _Inliner:
    def __init__(self, functions: Mapping[ir.OperatorIdentifier, ir.Function], imports: dict[str, int]) -> None:
        self._functions = functions
        self._imports = imports
        self._values, self._nodes = _Names(), _Names()

    def inline_in(self, graph: ir.Graph) -> None:
        """Replace calls in a graph and its subgraphs. Nodes that take the place of a call are looked at in turn."""
        for name in (*(value.name for value in graph.inputs), *graph.initializers):
            self._values.add(name)
        for op in graph:
            self._nodes.add(op.name or None)
            for value in op.outputs:
                self._values.add(value.name)
        for op in graph:
            function = self._functions.get(op.op_identifier())
            if function is None:
                for subgraph in subgraphs(op):
                    self.inline_in(subgraph)
            else:
                self._replace(graph, op, function)

    def _replace(self, graph: ir.Graph, call: ir.Node, function: ir.Function) -> None:
        for domain, version in function.opset_imports.items():
            if self._imports.setdefault(domain, version) != version:
                raise ValueError(f"function {function.name!r} imports another version of {domain!r} than the model")
        if len(call.inputs) > len(function.inputs):
            raise ValueError(f"a call of function {function.name!r} has {len(call.inputs)} inputs, which is too many")
        body = function.graph.clone()
        given = dict(zip(body.inputs, call.inputs, strict=False))
        results = [given.get(value) if value in body.inputs else value for value in body.outputs]
        if None in results:
            raise ValueError(f"a call of function {function.name!r} leaves out an input that is a result as well")
        ops = list(body)
        for op in _inner_first(ops):
            self._adapt(op, call, function)
        for formal in body.inputs:
            for use in tuple(formal.uses()):
                use.node.replace_input_with(use.idx, given.get(formal))
        body.outputs.clear()
        body.remove(ops)
        ir.convenience.replace_nodes_and_values(
            graph,
            insertion_point=call,
            old_nodes=[call],
            new_nodes=ops,
            old_values=call.outputs,
            new_values=[value for value in results if value is not None],
        )

    def _adapt(self, op: ir.Node, call: ir.Node, function: ir.Function) -> None:
        """Name a copied node and its results apart from all others, and give it the attributes of the call."""
        op.name = self._nodes.unused(op.name or "node")
        for value in op.outputs:
            value.name = self._values.unused(value.name or "val")
        op.metadata_props.update({**call.metadata_props, **op.metadata_props})
        for name, attribute in list(op.attributes.items()):
            if attribute.is_ref():
                del op.attributes[name]
                given = _given(attribute.ref_attr_name, call, function)
                if given is not None:
                    op.attributes[name] = _renamed(given, name)


def _given(name: str | None, call: ir.Node, function: ir.Function) -> ir.Attr | None:
    """Return what a call gives for an attribute of a function, or else the default; None where there is neither."""
    assert name is not None
    value = call.attributes.get(name, function.attributes.get(name))
    if value is None or (not value.is_ref() and value.value is None):
        return None
    if value.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        raise ValueError(f"attribute {name!r} of function {function.name!r} is a graph, which can't be inlined")
    return value


def _renamed(value: ir.Attr, name: str) -> ir.Attr:
    if value.is_ref():
        assert value.ref_attr_name is not None
        return ir.RefAttr(name, value.ref_attr_name, value.type, doc_string=value.doc_string)
    return ir.Attr(name, value.type, value.value, doc_string=value.doc_string)


def _inner_first(ops: Collection[ir.Node]) -> Iterator[ir.Node]:
    for op in ops:
        for subgraph in subgraphs(op):
            yield from _inner_first(list(subgraph))
        yield op
