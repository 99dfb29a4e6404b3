"""Single operators and patterns, alone and in context, with the rule that rewrites each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.partitioner.passes.rewrites.apply import SETTLING
from trtnode.partitioner.passes.rewrites.rules import RULES

TOKENS, IMAGE = (1, 256, 768), (1, 64, 56, 56)
CUBIC = "c = Mul(cube, small) a = Add(x, c) u = Mul(a, root) t = Tanh(u) g = Add(t, one) h = Mul(x, half) y = Mul(h, g)"
DEVIATION = "e = Add(v, epsilon) s = Sqrt(e)"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Nodes from x to y, and what they are to gain.

    Attributes:
        rule: That rewrites them.
        nodes: In ONNX's text form.
        shape: Of x and y, float32.
        bars: Least gain alone, by engine.
    """

    rule: str
    nodes: str
    shape: Sequence[int] = TOKENS
    bars: Mapping[str, float] = dataclasses.field(default_factory=dict)


PATTERNS: Mapping[str, Pattern] = {
    "Mish": Pattern(rule="mish", nodes="s = Softplus(x) t = Tanh(s) y = Mul(x, t)", bars={"native": 4.0}),
    "HardSwish by Clip": Pattern(
        rule="hard-swish",
        nodes="a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
        bars={"native": 1.3},
    ),
    "HardSigmoid by Clip": Pattern(
        rule="hard-sigmoid-operator", nodes="a = Add(x, three) c = Clip(a, zero, six) y = Div(c, six)"
    ),
    "RMSNorm by Reciprocal": Pattern(
        rule="rms-norm",
        nodes=f"q = Pow(x, two) v = ReduceMean(q, last) {DEVIATION} i = Reciprocal(s) n = Mul(x, i) y = Mul(scale, n)",
        bars={"native": 2.0},
    ),
    "LayerNorm by Reciprocal": Pattern(
        rule="layer-norm",
        nodes=f"m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last) {DEVIATION} "
        "r = Reciprocal(s) n = Mul(d, r) k = Mul(n, scale) y = Add(k, shift)",
    ),
    "LayerNorm unscaled": Pattern(
        rule="layer-norm-unscaled",
        nodes=f"m = ReduceMean(x, last) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, last) {DEVIATION} y = Div(d, s)",
    ),
    "GroupNorm by instances": Pattern(
        rule="group-norm",
        nodes="r = Reshape(x, groups) i = InstanceNormalization(r, ones, zeros) z = Shape(x) b = Reshape(i, z) "
        "k = Mul(b, cs) y = Add(k, cb)",
        shape=IMAGE,
    ),
    "GELU by tanh": Pattern(rule="gelu-tanh", nodes=f"cube = Pow(x, three) {CUBIC}", bars={"openvino": 2.0}),
    "Tanh": Pattern(rule="tanh", nodes="y = Tanh(x)"),
    "Shape and back": Pattern(
        rule="reshapes", nodes="u = Unsqueeze(x, last) t = Transpose <perm = [3, 0, 1, 2]> (u) y = Squeeze(t, first)"
    ),
}

CONTEXTS: Mapping[str, tuple[str, str]] = {
    "alone": ("", ""),
    "in context": ("x = MatMul(input, w)", "output = MatMul(y, w)"),
}
"""Nodes before and behind, by name: none, or products of matrices (for images, 1x1 convolutions)."""

FILTERS = ("x = Conv(input, wc)", "output = Conv(y, wc)")


def operator_models() -> Iterator[tuple[str, Pattern, onnx.ModelProto, onnx.ModelProto, int]]:
    """Yield name, pattern, model without and with the rule, and the number of its places."""
    rules = {rule.name: rule for rule in RULES}
    for name, pattern in PATTERNS.items():
        for context in CONTEXTS:
            source = _model(pattern, context)
            rewritten = clean_up(ir.from_proto(source)).model
            places = 0
            for place in rules[pattern.rule].find(rewritten.graph):
                place.apply()
                places += 1
            for settle in SETTLING:
                settle(rewritten)
            yield f"{name}, {context}", pattern, source, ir.to_proto(rewritten), places


def _model(pattern: Pattern, context: str) -> onnx.ModelProto:
    before, behind = CONTEXTS[context]
    if before and pattern.shape == IMAGE:
        before, behind = FILTERS
    sizes = ",".join(map(str, pattern.shape))
    ends = ("input", "output") if before else ("x", "y")
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> operator (float[{sizes}] {ends[0]}) => (float[{sizes}] {ends[1]}) '
        f"{{ {before} {pattern.nodes} {behind} }}"
    )
    read = dict.fromkeys(name for node in model.graph.node for name in node.input)
    constants = _constants()
    model.graph.initializer.extend(onnx.numpy_helper.from_array(constants[n], n) for n in read if n in constants)
    return model


def _constants() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    numbers = {"zero": 0, "half": 0.5, "one": 1, "two": 2, "three": 3, "six": 6, "epsilon": 1e-6, "small": 0.044715}
    scalars = {name: np.array(number, np.float32) for name, number in numbers.items()}
    width, channels = TOKENS[-1], IMAGE[1]
    return scalars | {
        "root": np.array(np.sqrt(2 / np.pi), np.float32),
        "first": np.array([0]),
        "last": np.array([-1]),
        "groups": np.array([0, 32, -1]),
        "ones": np.ones(32, np.float32),
        "zeros": np.zeros(32, np.float32),
        "scale": np.linspace(0.5, 1.5, width, dtype=np.float32),
        "shift": np.linspace(-0.5, 0.5, width, dtype=np.float32),
        "cs": np.linspace(0.5, 1.5, channels, dtype=np.float32).reshape(-1, 1, 1),
        "cb": np.linspace(-0.5, 0.5, channels, dtype=np.float32).reshape(-1, 1, 1),
        "w": rng.standard_normal((width, width), np.float32) / np.float32(np.sqrt(width)),
        "wc": rng.standard_normal((channels, channels, 1, 1), np.float32) / np.float32(np.sqrt(channels)),
    }
