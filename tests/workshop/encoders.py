"""Writes small encoders of text with masked attention, and ones whose answers depend on padding."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

VOCABULARY, WIDTH, SECRET = 50, 8, 37

ATTENTION = """
    seen = Cast<to=1>(mask)
    unseen = Sub(one, seen)
    far = Mul(unseen, low)
    {leak}
    keys = Unsqueeze(shut, second)
    turned = Transpose<perm=[0,2,1]>(x)
    scores = MatMul(x, turned)
    biased = Add(scores, keys)
    weights = Softmax<axis=-1>(biased)
    mixed = MatMul(weights, x)
    hidden = MatMul(mixed, w)
"""
SEALED = "shut = Identity(far)"
OPEN_FOR_ONE_WORD = """
    is_secret = Equal(ids, secret)
    shows = Cast<to=1>(is_secret)
    hides = Sub(one, shows)
    shut = Mul(far, hides)
"""
POOLED = """
    wide = Unsqueeze(seen, third)
    kept = Mul(hidden, wide)
    sum = ReduceSum<keepdims=0>(kept, second)
    count = ReduceSum<keepdims=0>(wide, second)
    pooled = Div(sum, count)
"""
MEAN_OF_ALL = "pooled = ReduceMean<keepdims=0>(hidden, second)"


def encoder(*, leak: str = SEALED, pool: str = POOLED, positions: int = 0) -> onnx.ModelProto:
    """Return a model of ``ids`` and ``mask``, both int64[N,T], that gives a vector a word and one for all of them.

    Args:
        leak: What decides which words are seen.
        pool: How the vector for all words comes about.
        positions: Longest text; 0 for any.
    """
    words = "x = Gather(table, ids)"
    if positions:
        words = """
            shape = Shape<start=1>(ids)
            own = Slice(places, zero, shape, zero)
            word = Gather(table, ids)
            x = Add(word, own)
        """
    graph = f"""
        <ir_version: 10, opset_import: ["": 21]>
        encoder (int64[N,T] ids, int64[N,T] mask) => (float[N,T,{WIDTH}] hidden, float[N,{WIDTH}] pooled) {{
            {words} {ATTENTION.format(leak=leak)} {pool}
        }}
    """
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(graph)
    constants = {
        "table": rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32),
        "places": rng.standard_normal((max(1, positions), WIDTH)).astype(np.float32),
        "w": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32),
        "one": np.float32(1),
        "low": np.float32(-1e9),
        "secret": np.int64(SECRET),
        "zero": np.array([0]),
        "second": np.array([1]),
        "third": np.array([2]),
    }
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items() if k in used)
    return model


def convolution_over_time() -> onnx.ModelProto:
    """Return a model without a mask, float[N,4,T] to the same, whose words see their neighbours."""
    weights = np.random.default_rng(0).standard_normal((4, 4, 3)).astype(np.float32)
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        convolution (float[N,4,T] x) => (float[N,4,T] y) { y = Conv<pads=[1,1]>(x, w) }
    """)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def request(length: int, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return a request to an encoder: some of its words at the end are masked by the client itself."""
    rng = np.random.default_rng(seed)
    seen = rng.integers(1, length + 1, (rows, 1))
    mask = (np.arange(length)[None] < seen).astype(np.int64)
    return {"ids": rng.integers(0, VOCABULARY, (rows, length)), "mask": mask}
