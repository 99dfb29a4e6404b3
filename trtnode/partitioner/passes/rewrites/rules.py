"""The table of rules: for which engine each pays.

A gain is the time of the old nodes over that of the new ones, measured on a CPU with AVX2: of the nodes alone, and
between two convolutions or products of matrices. 1 is no difference. Where an engine has no gain, the rule isn't
applied for it: it loses there, or nobody has measured it. On a CPU with AVX-512 the same rules pay. Graphics processors
weren't there to measure: their gains of 1 stand where the new form computes no more, and is safe in float16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Set

import onnx_ir as ir

from trtnode.partitioner.passes.rewrites.branches import find_branches
from trtnode.partitioner.passes.rewrites.constant_branches import find_constant_branches
from trtnode.partitioner.passes.rewrites.operators import (
    find_hard_sigmoid,
    find_hard_swish,
    find_layer_norm,
    find_lp_normalization,
    find_unscaled_layer_norm,
    find_usual_layer_norm,
)
from trtnode.partitioner.passes.rewrites.replacement import Replacement
from trtnode.partitioner.passes.rewrites.reshapes import find_reshapes

NATIVE, OPENVINO, TENSORRT, TENSORRT_RTX = "native", "openvino", "tensorrt", "tensorrt-rtx"


@dataclasses.dataclass(frozen=True, slots=True)
class Gain:
    """The time of the old nodes over that of the new ones; above 1 is faster."""

    alone: float = 1.0
    in_context: float = 1.0

    @property
    def pays(self) -> bool:
        """True if the new nodes are faster where they stand."""
        return self.in_context > 1.0 or self.alone >= 2.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One equal rewrite.

    Attributes:
        name: For users.
        find: Yields places of a sorted graph, each to be applied before the next one is asked for.
        gains: By engine. One without a gain doesn't get the rule.
        needs: Sets of operators, one of which must be in a graph that has places.
        opens: True if it lets engines take or compute more: of use without a gain, but not where nothing runs in them.
    """

    name: str
    find: Callable[[ir.Graph], Iterator[Replacement]]
    gains: Mapping[str, Gain]
    needs: tuple[frozenset[str], ...]
    opens: bool = False

    def fits(self, op_types: Set[str]) -> bool:
        """Return whether a graph of these operators may have places."""
        return any(needed <= op_types for needed in self.needs)

    def pays(self, engine: str) -> bool:
        """Return whether the rule makes nodes faster in an engine."""
        return engine in self.gains and self.gains[engine].pays

    def helps(self, engine: str) -> bool:
        """Return whether the rule is for a model of an engine, some of whose nodes may run natively.

        It must pay in the engine or natively, or open the graph to the engine, and lose in neither.
        """
        pays = self.pays(engine) or self.pays(NATIVE) or (self.opens and engine != NATIVE)
        return pays and {engine, NATIVE} <= self.gains.keys()


def _each(find: Callable[[ir.Node], Replacement | None]) -> Callable[[ir.Graph], Iterator[Replacement]]:
    """Look at each node that is still there, the last one first, so that the largest place is found first."""

    def places(graph: ir.Graph) -> Iterator[Replacement]:
        for op in reversed(list(graph)):
            place = find(op) if op.graph is graph else None
            if place is not None:
                yield place

    return places


def _ops(*alternatives: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(text.split()) for text in alternatives)


EQUAL = Gain()
EVERYWHERE = dict.fromkeys((NATIVE, OPENVINO, TENSORRT, TENSORRT_RTX), EQUAL)

RULES: tuple[Rule, ...] = (
    Rule(
        name="constant-if",
        find=find_constant_branches,
        gains=EVERYWHERE,
        needs=_ops("If"),
        opens=True,
    ),
    Rule(
        name="branches",
        find=_each(find_branches),
        gains={NATIVE: Gain(3.9, 1.15), OPENVINO: Gain(4.2, 1.17), TENSORRT: EQUAL, TENSORRT_RTX: EQUAL},
        needs=_ops("Conv Add", "Conv Sum"),
    ),
    Rule(
        name="hard-swish",
        find=_each(find_hard_swish),
        gains={NATIVE: Gain(1.55, 1.33)},
        needs=_ops("Clip Mul Add"),
    ),
    Rule(
        name="hard-sigmoid-operator",
        find=_each(find_hard_sigmoid),
        gains={NATIVE: Gain(1.0, 1.1)},
        needs=_ops("Clip Mul Add", "Clip Div Add"),
    ),
    Rule(
        name="layer-norm",
        find=_each(find_layer_norm),
        gains={NATIVE: Gain(2.0, 1.0), OPENVINO: EQUAL, TENSORRT: EQUAL, TENSORRT_RTX: EQUAL},
        needs=_ops("ReduceMean Sqrt"),
    ),
    Rule(
        name="layer-norm-operator",
        find=_each(find_usual_layer_norm),
        gains={NATIVE: EQUAL, TENSORRT: EQUAL, TENSORRT_RTX: EQUAL},
        needs=_ops("ReduceMean Sqrt Div"),
        opens=True,
    ),
    Rule(
        name="layer-norm-unscaled",
        find=_each(find_unscaled_layer_norm),
        gains={NATIVE: Gain(2.0, 1.08)},
        needs=_ops("ReduceMean Sqrt Div", "ReduceMean Sqrt Reciprocal"),
    ),
    Rule(
        name="lp-normalization",
        find=_each(find_lp_normalization),
        gains={NATIVE: EQUAL, OPENVINO: EQUAL},
        needs=_ops("LpNormalization"),
        opens=True,
    ),
    Rule(
        name="reshapes",
        find=find_reshapes,
        gains={NATIVE: Gain(1.0, 1.1)},
        needs=_ops("Squeeze", "Unsqueeze", "Flatten", "Reshape", "Concat", "Split"),
    ),
)
"""In order. Rules that a measurement shows to lose aren't written: merging convolutions or products that read the same
value, SiLU to one operator, GroupNormalization in ONNX Runtime, LayerNormalization over channels between Transposes.
Neither are those that no model of a collection of 230 had a place for: BatchNormalization behind pooling or Concat."""

NAMES: tuple[str, ...] = tuple(rule.name for rule in RULES)
