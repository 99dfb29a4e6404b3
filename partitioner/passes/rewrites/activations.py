"""Activations in cheaper forms.

Proofs:

- ``hard-swish``: x·clip(x + 3, 0, 6) / 6 = x·clip(x/6 + 1/2, 0, 1) is the definition of HardSwish, and
  clip(x/6 + 1/2, 0, 1) that of HardSigmoid with alpha = 1/6 and beta = 1/2 (operator specifications).
- ``hard-sigmoid-operator``: so is clip(x + 3, 0, 6) / 6 alone, the gate of a whole channel.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from trtnode.partitioner.passes.rewrites.patterns import Any, Constant, Found, Number, call, find, is_float32, number_in
from trtnode.partitioner.passes.rewrites.replacement import Place, Writer

X = Any("x")

FIRST_HARD_SWISH = 14

_CLIPPED = (
    call("Clip", call("Add", X, Number(3.0)), Constant("low"), Constant("high")),
    call("Clip", call("Add", X, Number(3.0))),
)
HARD_SIGMOID = tuple(
    form for clipped in _CLIPPED for form in (call("Div", clipped, Number(6.0)), call("Mul", clipped, Number(1 / 6)))
)
HARD_SWISH = tuple(
    pattern
    for clipped in _CLIPPED
    for pattern in (
        call("Div", call("Mul", X, clipped), Number(6.0)),
        call("Mul", X, call("Div", clipped, Number(6.0))),
        call("Mul", call("Mul", X, clipped), Number(1 / 6)),
        call("Mul", X, call("Mul", clipped, Number(1 / 6))),
    )
)


def find_hard_swish(op: ir.Node) -> Place | None:
    """Find HardSwish by Clip."""
    found = find(op, HARD_SWISH)
    if found is None or not _clips_at_six(found) or not is_float32(x := found.values["x"]):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "hard_swish")
        if writer.opset >= FIRST_HARD_SWISH:
            writer.finish(writer.call("HardSwish", x))
        else:
            writer.finish(writer.call("Mul", x, writer.call("HardSigmoid", x, alpha=1 / 6, beta=0.5)))

    return Place(found.nodes, apply)


def find_hard_sigmoid(op: ir.Node) -> Place | None:
    """Find HardSigmoid by Clip."""
    found = find(op, HARD_SIGMOID)
    if found is None or not _clips_at_six(found) or not is_float32(found.values["x"]):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "hard_sigmoid")
        writer.finish(writer.call("HardSigmoid", found.values["x"], alpha=1 / 6, beta=0.5))

    return Place(found.nodes, apply)


def _clips_at_six(found: Found) -> bool:
    clip = found.call("Clip")
    if "low" in found.values:
        return number_in(found.values["low"]) == 0.0 and number_in(found.values["high"]) == 6.0
    return clip.attributes.get_float("min", math.nan) == 0.0 and clip.attributes.get_float("max", math.nan) == 6.0
