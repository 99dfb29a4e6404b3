"""Approximations of activations: the places of a model that have one, and the model with some of them.

A place is found by what it computes, however it is spelled: the nodes around an Erf, a Sigmoid or a Gelu are evaluated
on numbers and compared with the function.

* GELU: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 and x sigmoid(1.702 x), Hendrycks and Gimpel, Gaussian Error Linear
  Units, 2016, section 2; errors up to 5e-4 and 2e-2.
* Sigmoid: max(0, min(1, x/6 + 1/2)), the hard sigmoid; and SiLU, x sigmoid(x): x times that, hard swish, Howard et al.,
  Searching for MobileNetV3, 2019, section 5.2; errors up to 0.07 and 0.14.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.new_values import add_constant, new_names
from trtnode.partitioner.model.values import is_constant

PROBES = np.linspace(-6.0, 6.0, 241)
TOLERANCE = 1e-5

DEEPEST = 4
"""Most nodes between an Erf or Sigmoid and the result of a place."""

OPSET_OF_HARD_SWISH, OPSET_OF_GELU = 14, 20
"""Versions of ONNX that have the operators."""

_erf = np.vectorize(math.erf)


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * (1 + _erf(x / math.sqrt(2))) / 2)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "GELU": _gelu,
    "SiLU": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
}
"""The functions that have approximations, the larger ones first."""

FORMS: Mapping[str, tuple[str, ...]] = {
    "GELU": ("tanh", "sigmoid"),
    "SiLU": ("hard swish",),
    "sigmoid": ("hard sigmoid",),
}
"""The approximations of each function."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Nodes that compute a function with approximations.

    Attributes:
        function: A key of ``FORMS``.
        x: The argument.
        result: The function's value.
        nodes: In topological order.
    """

    function: str
    x: ir.Value
    result: ir.Value
    nodes: tuple[Node, ...]

    @property
    def name(self) -> str:
        """Identity of the node that gives the result."""
        return self.nodes[-1].name


def find_places(graph: Graph) -> list[Place]:
    """Find the places of a cleaned graph. No two share a node."""
    taken: set[str] = set()
    places = []
    for node in graph.nodes:
        if node.op_type in ("Erf", "Sigmoid", "Gelu") and node.op.inputs[0] is not None and node.name not in taken:
            place = _place_around(graph, node)
            if place is not None and taken.isdisjoint(names := {one.name for one in place.nodes}):
                taken |= names
                places.append(place)
    return places


def approximate(graph: Graph, forms: Mapping[str, str]) -> Graph:
    """Replace places by approximations, in place.

    Args:
        graph: The cleaned graph.
        forms: The form of each place to replace, by the place's name.

    Returns:
        A new view of the same model.
    """
    for place in find_places(graph):
        if place.name in forms:
            nodes = _nodes_of_form(forms[place.name], place, graph.model.graph.opset_imports.get("", 0))
            old = [node.op for node in place.nodes]
            results = [nodes[-1].outputs[0]]
            ir.convenience.replace_nodes_and_values(
                graph.model.graph, old[-1], list(reversed(old)), nodes, [place.result], results
            )
    return Graph.of(graph.model)


def _place_around(graph: Graph, node: Node) -> Place | None:
    source = node.op.inputs[0]
    assert source is not None
    scaled = source.producer()
    arguments = [*(v for v in (scaled.inputs if scaled else ()) if v is not None and not is_constant(v)), source]
    results = list(_behind(node.op.outputs[0], DEEPEST))
    for function, x, result in ((f, x, r) for f in FUNCTIONS for x in arguments for r in results):
        used: set[ir.Node] = set()
        if _computes(result, x, FUNCTIONS[function], used) and node.op in used and _is_closed(used, result):
            nodes = tuple(one for one in graph.nodes if one.op in used)
            return Place(function=function, x=x, result=result, nodes=nodes)
    return None


def _behind(value: ir.Value, depth: int) -> Iterator[ir.Value]:
    yield value
    for use in value.uses() if depth else ():
        if use.node.op_type in ("Mul", "Add"):
            yield from _behind(use.node.outputs[0], depth - 1)


def _computes(value: ir.Value, x: ir.Value, function: Callable[[np.ndarray], np.ndarray], used: set[ir.Node]) -> bool:
    numbers = _evaluate(value, x, used, 2 * DEEPEST)
    return numbers is not None and bool(np.allclose(numbers, function(PROBES), rtol=0, atol=TOLERANCE))


_OPERATORS: Mapping[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Div": np.divide,
    "Erf": _erf,
    "Sigmoid": _sigmoid,
    "Gelu": _gelu,
}


def _evaluate(value: ir.Value, x: ir.Value, used: set[ir.Node], depth: int) -> np.ndarray | None:
    """Evaluate a value for all probes of ``x``; None where it is no function of ``x`` alone, element by element."""
    if value is x:
        return PROBES
    if value.const_value is not None and is_constant(value):
        constant = value.const_value.numpy()
        return constant.astype(np.float64).reshape(()) if constant.size == 1 else None
    op = value.producer()
    if op is None or op.domain or op.op_type not in _OPERATORS or not depth or _is_tanh_gelu(op):
        return None
    read = [None if v is None else _evaluate(v, x, used, depth - 1) for v in op.inputs]
    if any(numbers is None for numbers in read):
        return None
    used.add(op)
    return _OPERATORS[op.op_type](*read)


def _is_tanh_gelu(op: ir.Node) -> bool:
    return op.op_type == "Gelu" and op.attributes.get_string("approximate", "none") != "none"


def _is_closed(used: set[ir.Node], result: ir.Value) -> bool:
    """Return whether only the result is read elsewhere."""
    inner = [v for op in used for v in op.outputs if v is not result]
    return all(not v.is_graph_output() and all(use.node in used for use in v.uses()) for v in inner)


def _nodes_of_form(form: str, place: Place, opset: int) -> list[ir.Node]:
    x, result, graph = place.x, place.result, place.nodes[-1].op.graph
    assert isinstance(graph, ir.Graph)
    nodes: list[ir.Node] = []
    written = form.replace(" ", "_")

    def apply(op_type: str, *inputs: ir.Value, **attributes: float | str) -> ir.Value:
        name = new_names(graph)(f"{result.name}/{written}_{len(nodes)}")
        output = ir.Value(name=name, type=x.type, shape=x.shape)
        nodes.append(ir.node(op_type, inputs, attributes, name=name, outputs=[output]))
        return output

    def constant(number: float) -> ir.Value:
        assert x.dtype is not None
        return add_constant(graph, f"{result.name}/{written}/{number:g}", np.array(number, x.dtype.numpy()))

    if form == "tanh" and opset >= OPSET_OF_GELU:
        apply("Gelu", x, approximate="tanh")
    elif form == "tanh":
        cube = apply("Mul", apply("Mul", x, x), x)
        inner = apply("Add", x, apply("Mul", cube, constant(0.044715)))
        tanh = apply("Tanh", apply("Mul", inner, constant(math.sqrt(2 / math.pi))))
        apply("Mul", apply("Mul", x, constant(0.5)), apply("Add", tanh, constant(1.0)))
    elif form == "sigmoid":
        apply("Mul", x, apply("Sigmoid", apply("Mul", x, constant(1.702))))
    elif form == "hard swish" and opset >= OPSET_OF_HARD_SWISH:
        apply("HardSwish", x)
    else:
        hard = apply("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        if form == "hard swish":
            apply("Mul", x, hard)
    return nodes


def context_of(graph: Graph, place: Place) -> tuple[Node, ...]:
    """Return the nodes of a place with those before and behind it, in topological order: its surroundings."""
    producer = place.x.producer()
    around: Sequence[ir.Node | None] = [producer, *(use.node for use in place.result.uses())]
    own = {node.op for node in place.nodes}
    return tuple(node for node in graph.nodes if node.op in own or node.op in around)
