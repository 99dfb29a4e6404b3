"""Small decoders with a cache of keys and values, named as exporters name them."""

from __future__ import annotations

import numpy as np
import onnx

from model_texts import parse

VOCABULARY, HEADS, WIDTH = 23, 2, 4

PLAIN = ("batch", "sequence", "past", "total")
OPTIMUM = (
    "batch_size",
    "sequence_length",
    "past_sequence_length",
    "past_sequence_length + sequence_length",
)
"""Names of rows, new tokens, tokens in the cache, and the attention mask's length."""

GRAPH = """decoder (
     int64[{b},{s}] ids, int64[{b},{t}] mask, float[{b},2,{p},4] past_key, float[{v},2,{q},4] past_value)
    => (float[{b},{s},23] logits, float[b,2,l,4] key, float[b,2,m,4] value)
    <int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64[4] heads = {{0,-1,2,4}},
     int64[3] flat = {{0,-1,8}}, int64[1] first = {{0}}, int64[1] second = {{1}},
     int64[2] front = {{0,1}}, int64[2] middle = {{1,2}},
     float half = {{0.5}}, float never = {{-10000}}, float nothing = {{0}}> {{
    x = Gather(embedding, ids)
    xq = MatMul(x, wq) xk = MatMul(x, wk) xv = MatMul(x, wv)
    hq = Reshape(xq, heads) hk = Reshape(xk, heads) hv = Reshape(xv, heads)
    q = Transpose<perm = [0,2,1,3]>(hq) k = Transpose<perm = [0,2,1,3]>(hk) v = Transpose<perm = [0,2,1,3]>(hv)
    key = Concat<axis = 2>(past_key, k)
    value = Concat<axis = 2>(past_value, v)
    past_shape = Shape(past_key) before = Gather(past_shape, two)
    key_shape = Shape(key) length = Gather(key_shape, two)
    rows = Range(before, length, one) columns = Range(zero, length, one)
    row = Unsqueeze(rows, second) column = Unsqueeze(columns, first)
    causal = LessOrEqual(column, row)
    seen = Cast<to = 9>(mask) seen4 = Unsqueeze(seen, middle) causal4 = Unsqueeze(causal, front)
    visible = And(seen4, causal4)
    kt = Transpose<perm = [0,1,3,2]>(key) dots = MatMul(q, kt) scaled = Mul(dots, half)
    hidden = Where(visible, nothing, never)
    scores = Add(scaled, hidden) shares = Softmax<axis = -1>(scores)
    mixed = MatMul(shares, value) back = Transpose<perm = [0,2,1,3]>(mixed) joined = Reshape(back, flat)
    out = MatMul(joined, wo) sum = Add(x, out) logits = MatMul(sum, head)
}}"""


def decoder(names: tuple[str, str, str, str] = PLAIN, *, aliases: bool = False) -> onnx.ModelProto:
    """Return a decoder of one layer.

    Args:
        names: Of its sizes, as in ``PLAIN``.
        aliases: True gives equal sizes of several inputs different names, as one of PyTorch's exporters does.
    """
    b, s, p, t = "bspt"
    graph = GRAPH.format(b=b, s=s, p=p, t=t, v="v" if aliases else b, q="q" if aliases else p)
    model = parse(graph)
    for value in (*model.graph.input, *model.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            given = dict(zip("bspt", names, strict=True)).get(dimension.dim_param)
            if given:
                dimension.dim_param = given
    rng = np.random.default_rng(1)
    sizes = {"embedding": (VOCABULARY, 8), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8)}
    for name, shape in {**sizes, "head": (8, VOCABULARY)}.items():
        weights = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model


def first_step(prompt: list[int]) -> dict[str, np.ndarray]:
    """Return the inputs of a decoder's first step, whose cache is empty."""
    empty = np.zeros((1, HEADS, 0, WIDTH), np.float32)
    return {
        "ids": np.array([prompt]),
        "mask": np.ones((1, len(prompt)), np.int64),
        "past_key": empty,
        "past_value": empty,
    }


def next_step(feeds: dict[str, np.ndarray], results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs of the step behind one that gave these results."""
    return {
        "ids": results["logits"][:, -1:].argmax(-1),
        "mask": np.ones((1, feeds["mask"].shape[1] + 1), np.int64),
        "past_key": results["key"],
        "past_value": results["value"],
    }
