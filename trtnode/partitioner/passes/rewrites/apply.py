"""Applies the rules for an engine, and says where."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection

import onnx_ir as ir

from trtnode.partitioner.model.default_values import held_defaults
from trtnode.partitioner.passes.clean_up import fold_and_infer, remove_dead_nodes, remove_identities
from trtnode.partitioner.passes.rewrites.rules import RULES, Gain, Rule
from trtnode.partitioner.passes.shape_inference import infer_shapes

logger = logging.getLogger(__name__)

REWRITES = "trtnode.rewrites"
"""Key of ``ir.Graph.meta`` for the list of ``Rewritten`` of a graph."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The places of one rule in a model.

    Attributes:
        rule: Its name.
        nodes: Name of the node at each place whose result stays.
        gain: Of these nodes, where they run.
    """

    rule: str
    nodes: tuple[str, ...]
    gain: Gain


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RewriteOptions:
    """The rules that a model is to get.

    Attributes:
        engine: The engine that most nodes will run in; ``native`` for none.
        without: Names of rules that the user leaves out.
    """

    engine: str
    without: Collection[str] = ()

    def rules(self) -> list[Rule]:
        """Return the rules that pay in the engine or natively, and lose in neither."""
        return [rule for rule in RULES if rule.name not in self.without and rule.helps(self.engine)]


def rewrite_model(model: ir.Model, rewriting: RewriteOptions) -> tuple[Rewritten, ...]:
    """Rewrite a cleaned model, in place, by the rules that pay in an engine or natively, and lose in neither.

    A graph that holds defaults of inputs stays as it is.

    Returns:
        The places, also kept with the graph: ``rewrites_of``.
    """
    done = () if held_defaults(model.graph) else _apply(model, rewriting)
    model.graph.meta[REWRITES] = done
    return done


def rewrites_of(graph: ir.Graph) -> tuple[Rewritten, ...]:
    """Return the places where a graph was rewritten."""
    found: tuple[Rewritten, ...] = graph.meta.get(REWRITES, ())
    return found


def would_rewrite(graph: ir.Graph, rewriting: RewriteOptions) -> bool:
    """Return whether a cleaned graph has a place of a rule that pays for it; the graph isn't changed."""
    return any(next(rule.find(graph), None) is not None for rule in rewriting.rules())


def _apply(model: ir.Model, rewriting: RewriteOptions) -> tuple[Rewritten, ...]:
    done = []
    held = _op_types(model.graph)
    for rule in rewriting.rules():
        names = []
        for place in rule.find(model.graph) if rule.fits(held) else ():
            names.append(place.name)
            place.apply()
        if names:
            held = _op_types(model.graph)
            logger.debug("%s: %d places", rule.name, len(names))
            done.append(Rewritten(rule=rule.name, nodes=tuple(names), gain=rule.gains[rewriting.engine]))
    for settle in SETTLING if done else ():
        settle(model)
    return tuple(done)


def _op_types(graph: ir.Graph) -> set[str]:
    return {op.op_type for op in graph}


SETTLING: tuple[Callable[[ir.Model], None], ...] = (remove_identities, infer_shapes, fold_and_infer, remove_dead_nodes)
"""Passes over a model with new nodes, in order."""
