"""The table of one library with TensorRT's API: the operators, types and forms that its parser and builder take.

Two libraries share the parser. They differ in plugins, kernels and types, so each has a table of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import onnx_ir as ir

from trtnode.engines.tensorrt.labelling.operators import ATTRIBUTES, DTYPES, RANKS
from trtnode.partitioner.cut.labels import Verdict
from trtnode.partitioner.graph.view import Node

Rule = Callable[[Node], Verdict | None]
"""Returns a refusal, or None."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParserTable:
    """The operators that one library takes, beyond the rules that hold for all.

    Attributes:
        title: The library's name in sentences.
        dtypes: The operators, and the element types that each computes on.
        attributes: The values that attributes may have, by operator.
        ranks: The ranks that inputs may have, by operator and position.
        lacking: Operators that other libraries of the kind have, and the reason why this one has not.
        taking_empty: Operators that compute on tensors without elements.
        rules: Rules that hold for this library alone, by operator.
    """

    title: str
    dtypes: Mapping[str, frozenset[ir.DataType]] = dataclasses.field(default_factory=lambda: DTYPES)
    attributes: Mapping[str, Mapping[str, tuple[int | float | str, ...]]] = dataclasses.field(
        default_factory=lambda: ATTRIBUTES
    )
    ranks: Mapping[str, Mapping[int, tuple[int, ...]]] = dataclasses.field(default_factory=lambda: RANKS)
    lacking: Mapping[str, str] = dataclasses.field(default_factory=dict)
    taking_empty: frozenset[str] = frozenset()
    rules: Mapping[str, Rule] = dataclasses.field(default_factory=dict)


TENSORRT = ParserTable(title="TensorRT")
"""As NVIDIA documents it: ``trtnode.engines.tensorrt.labelling.operators``."""
