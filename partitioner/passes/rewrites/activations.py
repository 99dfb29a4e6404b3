"""Activations in cheaper forms.

Proofs. With e = exp(x) and s(x) = 1 / (1 + exp(-x)):

- ``mish``: softplus(x) = ln(1 + e), and tanh(ln t) = (t² - 1) / (t² + 1); with t = 1 + e and n = t² - 1 = e·(e + 2),
  x·tanh(softplus(x)) = x·n / (n + 2). One exponential instead of three functions. x is clipped at 20 inside of e, where
  n / (n + 2) is 1 in float32, and at -80, where e is next to nothing; n then stays finite, in float32 alone.
- ``gelu-tanh``: (1 + tanh(u)) / 2 = s(2u), for any u, so x·(1 + tanh(u)) / 2 = x·s(2u).
- ``tanh``: tanh(x) = 2·s(2x) - 1. The error is that of float32 at 1, so small results lose digits.
- ``hard-swish``: x·clip(x + 3, 0, 6) / 6 = x·clip(x/6 + 1/2, 0, 1) is the definition of HardSwish, and
  clip(x/6 + 1/2, 0, 1) that of HardSigmoid with alpha = 1/6 and beta = 1/2 (operator specifications).
- ``hard-sigmoid-operator``: so is clip(x + 3, 0, 6) / 6 alone, the gate of a whole channel.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from trtnode.partitioner.model.values import ONNX_DOMAINS
from trtnode.partitioner.passes.rewrites.patterns import Any, Constant, Found, Number, call, find, is_float32, number_in
from trtnode.partitioner.passes.rewrites.replacement import Place, Writer

X, U = Any("x"), Any("u")

LOWEST, HIGHEST = -80.0, 20.0

LEAST_ELEMENTS = 4096
"""Fewer take a Tanh a few microseconds, which two more layers cost too."""

FIRST_CLIP_WITH_INPUTS = 11
FIRST_HARD_SWISH = 14

MISH = (call("Mul", X, call("Tanh", call("Softplus", X))), call("Mish", X))

_GATE = call("Add", call("Tanh", U), Number(1.0))
GELU_TANH = (
    call("Mul", call("Mul", X, Number(0.5)), _GATE),
    call("Mul", call("Mul", X, _GATE), Number(0.5)),
    call("Mul", X, call("Mul", _GATE, Number(0.5))),
)

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


def find_mish(op: ir.Node) -> Place | None:
    """Find Mish, as the operator or spelt out."""
    found = find(op, MISH)
    if found is None or not is_float32(x := found.values["x"]):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "mish")
        if writer.opset >= FIRST_CLIP_WITH_INPUTS:
            clipped = writer.call("Clip", x, writer.number(LOWEST), writer.number(HIGHEST))
        else:
            clipped = writer.call("Clip", x, min=LOWEST, max=HIGHEST)
        power, two = writer.call("Exp", clipped), writer.number(2.0)
        ratio = writer.call("Mul", power, writer.call("Add", power, two))
        writer.finish(writer.call("Mul", x, writer.call("Div", ratio, writer.call("Add", ratio, two))))

    return Place(found.nodes, apply)


def find_gelu_tanh(op: ir.Node) -> Place | None:
    """Find GELU by tanh, as the operator or spelt out."""
    found = find(op, GELU_TANH) or _gelu_operator(op)
    if found is None or not is_float32(x := found.values["x"]):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "gelu")
        inner = found.values["u"] if "u" in found.values else _inner(writer, x)
        gate = writer.call("Sigmoid", writer.call("Mul", inner, writer.number(2.0)))
        writer.finish(writer.call("Mul", x, gate, like=op.outputs[0]))

    return Place(found.nodes, apply)


def find_tanh(op: ir.Node) -> Place | None:
    """Find any Tanh but that of few elements, and that of Mish, which engines know as a whole."""
    x = op.inputs[0] if op.op_type == "Tanh" and op.domain in ONNX_DOMAINS else None
    producer = None if x is None else x.producer()
    if x is None or not is_float32(x) or (producer is not None and producer.op_type == "Softplus"):
        return None
    if x.shape is not None and x.shape.is_static() and math.prod(x.shape.numpy()) < LEAST_ELEMENTS:
        return None

    def apply() -> None:
        writer = Writer((op,), "tanh")
        two = writer.number(2.0)
        gate = writer.call("Sigmoid", writer.call("Mul", x, two))
        writer.finish(writer.call("Sub", writer.call("Mul", gate, two), writer.number(1.0)))

    return Place((op,), apply)


def find_hard_swish(op: ir.Node) -> Place | None:
    """Find HardSwish by Clip."""
    found = find(op, HARD_SWISH)
    return _hard_swish(found) if found is not None and _clips_at_six(found) else None


def find_hard_sigmoid(op: ir.Node) -> Place | None:
    """Find HardSigmoid by Clip."""
    found = find(op, HARD_SIGMOID)
    if found is None or not _clips_at_six(found) or not is_float32(found.values["x"]):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "hard_sigmoid")
        writer.finish(writer.call("HardSigmoid", found.values["x"], alpha=1 / 6, beta=0.5))

    return Place(found.nodes, apply)


def _hard_swish(found: Found) -> Place | None:
    x = found.values["x"]
    if not is_float32(x):
        return None

    def apply() -> None:
        writer = Writer(found.nodes, "hard_swish")
        if writer.opset >= FIRST_HARD_SWISH:
            writer.finish(writer.call("HardSwish", x))
        else:
            writer.finish(writer.call("Mul", x, writer.call("HardSigmoid", x, alpha=1 / 6, beta=0.5)))

    return Place(found.nodes, apply)


def _clips_at_six(found: Found) -> bool:
    clip = found.call("Clip")
    if "low" in found.values:
        return number_in(found.values["low"]) == 0.0 and number_in(found.values["high"]) == 6.0
    return clip.attributes.get_float("min", math.nan) == 0.0 and clip.attributes.get_float("max", math.nan) == 6.0


def _gelu_operator(op: ir.Node) -> Found | None:
    """Return the operator Gelu that approximates by tanh."""
    if op.op_type != "Gelu" or op.attributes.get_string("approximate", "none") != "tanh":
        return None
    return find(op, (call("Gelu", X),))


def _inner(writer: Writer, x: ir.Value) -> ir.Value:
    """Write √(2/π)·(x + 0.044715·x³)."""
    root = math.sqrt(2 / math.pi)
    cubic = writer.call("Mul", writer.call("Mul", x, x), writer.number(0.044715 * root))
    return writer.call("Mul", x, writer.call("Add", cubic, writer.number(root)))
