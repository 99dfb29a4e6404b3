"""Times of the layers of a stage, as the library that runs it reports them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """The time of one layer in one run.

    Attributes:
        name: The library's name for it.
        nodes: The ONNX nodes that it computes, as the library names them; empty for layers that the library adds.
        kind: The library's name for the operation.
        precision: Its precision; empty where the library doesn't report it.
        kernel: Its implementation; empty where the library doesn't report it.
        us: Microseconds.
    """

    name: str
    nodes: tuple[str, ...]
    kind: str
    precision: str
    kernel: str
    us: float


PRECISIONS = {"bfloat16": "bf16", "f16": "fp16", "f32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16"}
"""This program's names for types, by the names of libraries."""


def precision_name(text: str) -> str:
    """Return this program's name for a library's type."""
    return PRECISIONS.get(text.lower(), text.lower())
