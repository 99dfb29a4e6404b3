"""How long each layer of a stage takes, as the library that runs it tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from engines.base import Engine


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """How long one layer took in one run.

    Attributes:
        name: What the library calls it.
        nodes: What the library tells of the ONNX nodes that it computes; empty where it adds the layer by itself.
        kind: The library's name for what it does.
        precision: What it computes in; empty where the library doesn't tell.
        kernel: The implementation; empty where the library doesn't tell.
        us: Microseconds.
    """

    name: str
    nodes: tuple[str, ...]
    kind: str
    precision: str
    kernel: str
    us: float


@runtime_checkable
class ProfiledEngine(Engine, Protocol):
    """An engine that was loaded with the ``profiling_options`` of its backend. It runs slower than others."""

    def layer_times(self) -> Sequence[LayerTime]:
        """Layers of the last run, in order; what the library joins to another layer is not there."""
        ...


PRECISIONS = {"bfloat16": "bf16", "f16": "fp16", "f32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16"}
"""Our names for types that libraries call otherwise."""


def precision_name(text: str) -> str:
    """Our name for a type, whatever a library calls it."""
    return PRECISIONS.get(text.lower(), text.lower())
