"""Labels each node: an engine takes it, or it runs natively for a reason.

From IR version 4, an initializer that is also a graph input is a run-time value. ``passes.default_constants`` makes
most of them constants for engines. A node that reads another stays native, and the reason names the option that makes
it a constant.
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.errors import UnknownOptionError
from trtnode.partitioner.graph.node_keys import NodeKey
from trtnode.partitioner.graph.topology import as_booleans
from trtnode.partitioner.graph.view import Graph, Node, subgraph_nodes
from trtnode.partitioner.model.values import ONNX_DOMAINS
from trtnode.partitioner.passes.contrib_operators import CONTRIB_DOMAIN


class ReasonCode(enum.StrEnum):
    """Reason why a node runs natively."""

    UNSUPPORTED_OP = "UNSUPPORTED_OP"
    UNSUPPORTED_ATTRIBUTE = "UNSUPPORTED_ATTRIBUTE"
    UNSUPPORTED_DTYPE = "UNSUPPORTED_DTYPE"
    UNSUPPORTED_RANK = "UNSUPPORTED_RANK"
    UNSUPPORTED_INPUT = "UNSUPPORTED_INPUT"
    DYNAMIC_SHAPE = "DYNAMIC_SHAPE"
    DATA_DEPENDENT = "DATA_DEPENDENT"
    UNKNOWN_SHAPE = "UNKNOWN_SHAPE"
    CONTROL_FLOW = "CONTROL_FLOW"
    FOREIGN_DOMAIN = "FOREIGN_DOMAIN"
    USER_EXCLUDED = "USER_EXCLUDED"
    ATOMIC_GROUP = "ATOMIC_GROUP"
    TOO_SMALL = "TOO_SMALL"
    NOT_FASTER = "NOT_FASTER"
    TOO_FAST = "TOO_FAST"
    """The whole model takes hardly longer than the call of an engine."""
    BUILD_FAILED = "BUILD_FAILED"
    INACCURATE = "INACCURATE"
    UNCHECKED = "UNCHECKED"
    CHECK_TIMED_OUT = "CHECK_TIMED_OUT"
    """The next compilation checks it again: a busy machine says nothing about an engine."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    """Its engine took more memory than there was. The next compilation builds it again."""
    UNCHECKED_INDEX = "UNCHECKED_INDEX"
    NO_KERNEL = "NO_KERNEL"
    """Neither an engine nor the native executor has one."""


PASSING = frozenset({ReasonCode.CHECK_TIMED_OUT, ReasonCode.OUT_OF_MEMORY})
"""Reasons that tell of the machine at one moment, so that nothing remembers them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Label of a node.

    Attributes:
        code: None if an engine takes the node; else the reason.
        detail: One sentence for the user, empty if an engine takes the node.
    """

    code: ReasonCode | None = None
    detail: str = ""

    @property
    def supported(self) -> bool:
        """True if the engine takes the node."""
        return self.code is None


SUPPORTED = Verdict()
_FOLDED = Verdict(
    ReasonCode.UNSUPPORTED_INPUT, "It computes from constants alone, so it runs once, when the model is loaded."
)

CONTRIB_OPS = frozenset({"MatMulNBits"})
"""Operators of ONNX Runtime's own domain that a backend's rule decides about: weights come quantized in them."""

Predicate = Callable[[Node], Verdict]
"""A backend's own rule, without side effects."""


def label_nodes(graph: Graph, supports: Predicate, options: PartitionOptions) -> dict[str, Verdict]:
    """Label every node by the user's options, then the rules for any engine, then the backend's own rule.

    The backend is asked once for all nodes of one key that it takes.

    Args:
        graph: The cleaned graph.
        supports: The backend's rule.
        options: The user's options.

    Returns:
        A verdict for each node, by node identity.

    Raises:
        UnknownOptionError: If ``options`` lists an operator that neither the model nor ONNX has.
    """
    _check_options(graph, options)
    excluded = _excluded_by(options)
    rules = (_common_rule, supports, _subgraphs_rule((excluded, _common_rule, supports)))
    refusing: dict[NodeKey, Predicate | None] = {}

    def verdict_of(node: Node) -> Verdict:
        verdict = excluded(node)
        if verdict.code is None:
            if node.key not in refusing:
                refusing[node.key] = next((rule for rule in rules if not rule(node).supported), None)
            refuses = refusing[node.key]
            return refuses(node) if refuses else SUPPORTED  # again, because the sentence names the node's own tensors
        return verdict

    if options.native_nodes:  # names are no part of a kind
        return {node.name: verdict_of(node) for node in graph.nodes}
    taken = [verdict_of(node).code is None for node in graph.kinds]
    labels = dict.fromkeys(graph.names, SUPPORTED)
    for node in itertools.compress(graph.nodes, [not taken[kind] for kind in graph.kind_of]):
        labels[node.name] = verdict_of(node)
    return labels


def engine_nodes(graph: Graph, labels: Mapping[str, Verdict]) -> list[bool]:
    """Return, by number, whether an engine takes a node."""
    return [verdict.code is None for verdict in map(labels.__getitem__, graph.names)]


def without_constant_islands(graph: Graph, labels: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Refuse nodes that compute from constants alone and whose result no engine node reads.

    The native executor folds such nodes once, at load; an engine would have no work in a request.
    """
    result = dict(labels)
    if not any(graph.constant):
        return result
    inside = engine_nodes(graph, labels)
    before, after = graph.topology.edges
    engine = as_booleans(inside)
    constant = as_booleans(graph.constant) & engine
    readers = np.bincount(before[engine[after]], minlength=len(inside))
    pending = np.flatnonzero(constant & (readers == 0)).tolist()
    left, candidate = readers.tolist(), constant.tolist()
    while pending:
        index = pending.pop()
        result[graph.names[index]] = _FOLDED
        for predecessor in graph.topology.predecessors[index]:
            left[predecessor] -= 1
            if left[predecessor] == 0 and candidate[predecessor]:
                pending.append(predecessor)
    return result


def _first_refusal(node: Node, rules: Iterable[Predicate]) -> Verdict:
    verdicts = (rule(node) for rule in rules)
    return next((v for v in verdicts if not v.supported), SUPPORTED)


def _excluded_by(options: PartitionOptions) -> Predicate:
    if not (options.native_ops or options.native_nodes or options.engine_ops):
        return _nothing
    globs = [(glob, re.compile(fnmatch.translate(glob))) for glob in options.native_nodes]

    def rule(node: Node) -> Verdict:
        if node.op_type in options.native_ops:
            return Verdict(ReasonCode.USER_EXCLUDED, f"native_ops lists {node.op_type}.")
        if options.engine_ops and node.op_type not in options.engine_ops:
            return Verdict(ReasonCode.USER_EXCLUDED, f"engine_ops does not list {node.op_type}.")
        for glob, pattern in globs:
            if pattern.match(node.name):
                return Verdict(ReasonCode.USER_EXCLUDED, f"native_nodes has {glob!r}, which matches it.")
        return SUPPORTED

    return rule


def _nothing(_: Node) -> Verdict:
    """Exclude no node."""
    return SUPPORTED


def _common_rule(node: Node) -> Verdict:
    """Refuse nodes that no engine takes."""
    contrib = node.domain == CONTRIB_DOMAIN and node.op_type in CONTRIB_OPS
    if node.domain not in ONNX_DOMAINS and not contrib:
        return Verdict(ReasonCode.FOREIGN_DOMAIN, f"{node.op_type} belongs to domain {node.domain!r}, not to ONNX.")
    for read in node.reads:
        if read.is_initializer():
            return Verdict(
                ReasonCode.UNSUPPORTED_INPUT,
                f"A request may replace {read.name!r}, which is an initializer and a graph input. "
                "Make it a constant with --freeze-initializers, if no request does.",
            )
    if not contrib and not onnx.defs.has(node.op_type, node.opset, ""):
        # In a model-local function, onnxruntime crashes on a node without a schema.
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"ONNX opset {node.opset} has no operator {node.op_type}.")
    for value in (*node.op.inputs, *node.op.outputs):
        if value is not None and value.name:
            verdict = _check_value(value)
            if not verdict.supported:
                return verdict
    return SUPPORTED


def _subgraphs_rule(rules: Sequence[Predicate]) -> Predicate:
    """Return a rule that takes a node with subgraphs if the other rules take every node in them."""

    def rule(node: Node) -> Verdict:
        for inner in subgraph_nodes(node):
            if inner.op_type == "Constant" and inner.domain == "":
                continue
            verdict = _first_refusal(inner, rules)
            if not verdict.supported:
                return Verdict(
                    ReasonCode.CONTROL_FLOW, f"In a subgraph, {inner.name!r} runs natively: {verdict.detail}"
                )
        return SUPPORTED

    return rule


def _check_value(value: ir.Value) -> Verdict:
    if value.const_value is not None and value.is_initializer():
        return SUPPORTED
    if value.type is None:
        return Verdict(ReasonCode.UNKNOWN_SHAPE, f"The type of {value.name!r} can't be inferred.")
    if not isinstance(value.type, ir.TensorType):
        kind = type(value.type).__name__.removesuffix("Type").lower()
        return Verdict(ReasonCode.UNSUPPORTED_DTYPE, f"{value.name!r} is a {kind}, not a tensor.")
    if value.shape is None:
        return Verdict(ReasonCode.UNKNOWN_SHAPE, f"The rank of {value.name!r} can't be inferred.")
    return SUPPORTED


def _check_options(graph: Graph, options: PartitionOptions) -> None:
    for option, values in (("native_ops", options.native_ops), ("engine_ops", options.engine_ops)):
        for value in values:
            if value not in graph.op_types and not onnx.defs.has(value):
                known = ", ".join(sorted(graph.op_types)) or "(none)"
                raise UnknownOptionError(option, value, f"the operators {known}")
