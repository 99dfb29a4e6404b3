"""Options of the cut."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated

from trtnode.partitioner.options import Option

MOST_NODES = 10**9


class Allowance(enum.StrEnum):
    """Permission that an engine needs from the user."""

    DATA_DEPENDENT = "data-dependent"
    """Run operators whose amount of work depends on values, which makes engines slow."""
    NARROW_DOUBLE = "narrow-double"
    """Compute float64 in float32."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOptions:
    """The nodes that an engine may take."""

    native_ops: Annotated[tuple[str, ...], Option("Operators that run natively.", metavar="A,B", separator=",")] = ()
    native_nodes: Annotated[tuple[str, ...], Option("Globs over nodes that run natively.", metavar="GLOB")] = ()
    engine_ops: Annotated[
        tuple[str, ...],
        Option("The only operators that engines may take; none for all.", metavar="A,B", separator=","),
    ] = ()
    min_segment_nodes: Annotated[
        int, Option("Segments with fewer nodes run natively.", least=1, most=MOST_NODES, metavar="N")
    ] = 1
    max_segments: Annotated[
        int | None,
        Option("Most segments, those with the greatest estimated benefit.", least=1, most=MOST_NODES, metavar="N"),
    ] = None
    connected: Annotated[bool, Option("Make segments without unrelated branches, though there are more of them.")] = (
        False
    )
    allow: Annotated[
        tuple[Allowance, ...],
        Option("Let TensorRT run operators whose results depend on values in size, or compute float64 in float32."),
    ] = ()
    freeze_initializers: Annotated[
        bool,
        Option(
            "Make constants of initializers that are also graph inputs: more is computed once, and a request that "
            "sends one is refused instead of answered natively."
        ),
    ] = False
