"""Facts of a loaded model: where its nodes run, and what its compilation found."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from trtnode.engines.backends.names import NATIVE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Facts of a loaded model. The defaults are those of one that nobody has compiled.

    Attributes:
        engine: The library of its engines, or ``native``.
        segments: Number of engines in use.
        native_nodes: Number of nodes that ONNX Runtime or onnx.reference runs.
        precision_asked: The precision asked for; empty before the engines say it.
        precision: The precisions that its engines compute in.
        rejected: Sentences about engines that can't be used here.
        unchecked: Number of engines in use that nobody has compared with native execution.
        native_fallback: True if all nodes can run natively.
        index_sizes: Number of rows that each input of indices chooses from, where an engine says it.
        reference_nodes: Operators of the nodes that run in onnx.reference.
        engines_built: Number of engines that were built for this load.
        report: The compilation's report; None where there is none.
        memory: The memory plan; None where there is none.
        source: A copy of the model's file that nobody writes; None where there is none.
        sha256: Hash of the model's file; empty of a model that is made of several.
        variants: Figures of the model's variants, one of which this is.
    """

    engine: str = NATIVE
    segments: int = 0
    native_nodes: int = 0
    precision_asked: str = ""
    precision: str = "fp32"
    rejected: Sequence[str] = ()
    unchecked: int = 0
    native_fallback: bool = True
    index_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reference_nodes: Sequence[str] = ()
    engines_built: int = 0
    report: Mapping[str, Any] | None = None
    memory: Mapping[str, Any] | None = None
    source: pathlib.Path | None = None
    sha256: str = ""
    variants: Sequence[Mapping[str, Any]] = ()

    @property
    def tuning(self) -> Mapping[str, Any] | None:
        """Figures of the choice between engines and native execution, from the report."""
        return None if self.report is None else self.report.get("tuning")

    @property
    def border(self) -> int:
        """The elements of a request's inputs below which it is answered natively; 0 where engines answer all."""
        found = (self.tuning or {}).get("border")
        return int(found["elements"]) if found and self.segments and self.native_fallback else 0


UNCOMPILED = ModelFacts()
