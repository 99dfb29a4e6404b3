"""Models whose outputs are inputs of the next run, named as exporters name them."""

from __future__ import annotations

import itertools

import numpy as np
import onnx

from model_texts import parse

WIDTH, HIDDEN, VOCABULARY = 3, 4, 23

COUNTER = """counter (float[batch,1] x, float[batch,1] state) => (float[batch,1] sum, float[batch,1] stateN) {
    stateN = Add(state, x)
    sum = Identity(stateN)
}"""
"""Adds up what it gets."""

DOUBLING = COUNTER.replace("stateN = Add(state, x)", "twice = Add(state, state) stateN = Add(twice, x)")
"""Doubles its sum before it adds."""

MASKED = """masked (float[batch,new] x, int64[batch,total] attention_mask, float[batch,past] past) =>
(float[batch,1] sum, float[batch,total] present) <int64[1] last = {-1}> {
    present = Concat<axis = 1>(past, x)
    seen = Cast<to = 1>(attention_mask)
    kept = Mul(present, seen)
    sum = ReduceSum(kept, last)
}"""
"""Adds up what its mask leaves of a cache, as a decoder does that pays attention to it."""


def recurrent(kind: str) -> onnx.ModelProto:
    """Return an LSTM or a GRU over ``x`` of any length, with its state as PyTorch's exporter names it."""
    gates, cell = {"LSTM": (4, True), "GRU": (3, False)}[kind]
    inputs = (
        f"float[length,batch,{WIDTH}] x, float[1,batch,{HIDDEN}] h0{f', float[1,batch,{HIDDEN}] c0' if cell else ''}"
    )
    outputs = (
        f"float[length,batch,{HIDDEN}] y, float[1,batch,{HIDDEN}] hn{f', float[1,batch,{HIDDEN}] cn' if cell else ''}"
    )
    call = f"{kind}<hidden_size = {HIDDEN}>(x, w, r, , , h0{', c0' if cell else ''})"
    model = parse(
        f"recurrent ({inputs}) => ({outputs}) <int64[1] one = {{1}}> {{ "
        f"all, hn{', cn' if cell else ''} = {call} y = Squeeze(all, one) }}"
    )
    return with_weights(model, w=(1, gates * HIDDEN, WIDTH), r=(1, gates * HIDDEN, HIDDEN))


def cached_decoder(layers: int = 12) -> onnx.ModelProto:
    """Return a decoder with a key and a value cache a layer, named as in optimum's exports of GPT-2."""
    sizes = "float[batch_size,2,past_sequence_length,4]", "float[batch_size,2,total,4]"
    names = list(itertools.product(range(layers), ("key", "value")))
    inputs = ", ".join(f"{sizes[0]} past_key_values__{layer}__{kind}" for layer, kind in names)
    outputs = ", ".join(f"{sizes[1]} present__{layer}__{kind}" for layer, kind in names)
    body = "x0 = Gather(embedding, input_ids)" + "".join(map(_layer, range(layers)))
    model = parse(
        f"decoder (int64[batch_size,sequence_length] input_ids, {inputs}) => "
        f"(float[batch_size,sequence_length,{VOCABULARY}] logits, {outputs})"
        "<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[4] heads = {0,-1,2,4}, int64[3] flat = {0,-1,8}, "
        "int64[1] first = {0}, int64[1] second = {1}, int64[2] front = {0,1}, float half = {0.5}, "
        f"float never = {{-10000}}, float nothing = {{0}}> {{ {body} logits = MatMul(x{layers}, head) }}"
    )
    for value in (*model.graph.input, *model.graph.output):
        value.name = value.name.replace("__", ".")
    for node in model.graph.node:  # ONNX's text has no names with dots
        for tensors in (node.input, node.output):
            tensors[:] = [name.replace("__", ".") for name in tensors]
    shapes = {"embedding": (VOCABULARY, 8), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8), "wo": (8, 8)}
    return with_weights(model, **shapes, head=(8, VOCABULARY))


def _layer(n: int) -> str:
    past, present = f"past_key_values__{n}__", f"present__{n}__"
    return f"""
    xq{n} = MatMul(x{n}, wq) xk{n} = MatMul(x{n}, wk) xv{n} = MatMul(x{n}, wv)
    hq{n} = Reshape(xq{n}, heads) hk{n} = Reshape(xk{n}, heads) hv{n} = Reshape(xv{n}, heads)
    q{n} = Transpose<perm = [0,2,1,3]>(hq{n}) k{n} = Transpose<perm = [0,2,1,3]>(hk{n})
    v{n} = Transpose<perm = [0,2,1,3]>(hv{n})
    {present}key = Concat<axis = 2>({past}key, k{n})
    {present}value = Concat<axis = 2>({past}value, v{n})
    ps{n} = Shape({past}key) before{n} = Gather(ps{n}, two)
    ks{n} = Shape({present}key) length{n} = Gather(ks{n}, two)
    rows{n} = Range(before{n}, length{n}, one) columns{n} = Range(zero, length{n}, one)
    row{n} = Unsqueeze(rows{n}, second) column{n} = Unsqueeze(columns{n}, first)
    causal{n} = LessOrEqual(column{n}, row{n}) causal4{n} = Unsqueeze(causal{n}, front)
    kt{n} = Transpose<perm = [0,1,3,2]>({present}key) dots{n} = MatMul(q{n}, kt{n}) scaled{n} = Mul(dots{n}, half)
    hidden{n} = Where(causal4{n}, nothing, never)
    scores{n} = Add(scaled{n}, hidden{n}) shares{n} = Softmax<axis = -1>(scores{n})
    mixed{n} = MatMul(shares{n}, {present}value) back{n} = Transpose<perm = [0,2,1,3]>(mixed{n})
    joined{n} = Reshape(back{n}, flat) out{n} = MatMul(joined{n}, wo) x{n + 1} = Add(x{n}, out{n})"""


def with_weights(model: onnx.ModelProto, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    for name, shape in shapes.items():
        weights = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return model
