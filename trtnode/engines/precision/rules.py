"""Assigns a precision to each node: one for all, and rules for some."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterable, Mapping, Sequence

import onnx

from trtnode.engines.precision.options import PrecisionRule
from trtnode.partitioner.errors import UnknownOptionError
from trtnode.partitioner.graph.view import Graph, Node

logger = logging.getLogger(__name__)

PRECISIONS = ("int4", "fp8", "int8", "fp16", "bf16", "fp32")
"""The least exact one first."""

EXACTNESS = {"int4": 0, "fp8": 0, "int8": 0, "fp16": 1, "bf16": 1, "fp32": 2}

CALIBRATED = frozenset({"fp8", "int8"})
"""Precisions of weights and activations, which need the ranges of a calibration."""

WEIGHTS_ALONE = "int4"
"""The precision of weights beside activations in floats."""

QUANTIZED = CALIBRATED | {WEIGHTS_ALONE}


def fits(rule: PrecisionRule, node: Node) -> bool:
    """Return whether a rule applies to a node."""
    if rule.op is not None and rule.op != node.op_type:
        return False
    return rule.node is None or fnmatch.fnmatchcase(node.name, rule.node)


def join_precisions(precisions: Iterable[str]) -> str:
    """Join the precisions of several engines to one word, the least exact first: such as ``int8+fp32``."""
    return "+".join(sorted(set(precisions), key=PRECISIONS.index))


def assign(nodes: Iterable[Node], precision: str, rules: Sequence[PrecisionRule]) -> dict[str, str]:
    """Return the precision of each node by identity: that of the first rule that fits it, else the given one."""
    return {node.name: next((rule.precision for rule in rules if fits(rule, node)), precision) for node in nodes}


def at_least(plan: Mapping[str, str], precision: str) -> dict[str, str]:
    """Return the plan with nothing less exact than a precision."""
    return {name: max(precision, one, key=EXACTNESS.__getitem__) for name, one in plan.items()}


def check_rules(graph: Graph, rules: Sequence[PrecisionRule]) -> None:
    """Warn about rules that fit no node.

    Raises:
        UnknownOptionError: A rule names an operator that neither the model nor ONNX has.
    """
    for rule in rules:
        if rule.op is not None and rule.op not in graph.op_types and not onnx.defs.has(rule.op):
            known = ", ".join(sorted(graph.op_types)) or "(none)"
            raise UnknownOptionError("precision rule", rule.op, f"the operators {known}")
        if not any(fits(rule, node) for node in graph.nodes):
            logger.warning("The precision rule %s fits no node of the model, so it has no effect", rule)
