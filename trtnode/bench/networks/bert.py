"""BERT-base."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder

SEQUENCE = 128
VOCABULARY, POSITIONS, KINDS = 30_522, 512, 2
LAYERS, WIDTH, HEADS, INNER = 12, 768, 12, 3072
EPSILON = 1e-12
MASKED = -1e4
"""Added to the scores of masked tokens."""

ROWS, COLUMNS = (0, 2, 1, 3), (0, 2, 3, 1)
"""Orders of batch, tokens, heads and features that make each head's tokens the rows or columns of a matrix."""


def bert() -> ir.Model:
    """Build BERT-base, uncased, with its pooler, for sequences of 128 tokens.

    Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2019, section 3. GELU is written out with
    Erf, as exporters do below opset 20. Weights of layers without GELU keep the variance of their input.
    """
    net = NetworkBuilder("bert")
    ids, mask, kinds = (
        net.input(name, SEQUENCE, dtype=ir.DataType.INT64) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    x = _embed(net, ids, kinds)
    penalty = _penalize(net, mask)
    for layer in range(LAYERS):
        x = _normalize(net, f"layer_{layer}.attention_norm", net.op("Add", x, _attend(net, x, penalty)))
        inner = _gelu(net, net.linear(x, INNER))
        x = _normalize(net, f"layer_{layer}.norm", net.op("Add", x, net.linear(inner, WIDTH, gain=1)))
    first = net.op("Gather", x, net.constant(0, np.int64), axis=1)
    return net.finish(last_hidden_state=x, pooler_output=net.op("Tanh", net.linear(first, WIDTH, gain=1)))


def _embed(net: NetworkBuilder, ids: ir.Value, kinds: ir.Value) -> ir.Value:
    words = net.op("Gather", net.normal("words", VOCABULARY, WIDTH, std=1), ids)
    places = net.constant(np.arange(SEQUENCE), np.int64)
    positions = net.op("Gather", net.normal("positions", POSITIONS, WIDTH, std=0.5), places)
    segments = net.op("Gather", net.normal("kinds", KINDS, WIDTH, std=0.5), kinds)
    return _normalize(net, "embedding_norm", net.op("Add", net.op("Add", words, segments), positions))


def _penalize(net: NetworkBuilder, mask: ir.Value) -> ir.Value:
    """Return the penalty that is added to each token's scores, for all heads and all tokens that attend to it."""
    hidden = net.op("Sub", net.constant(1, np.float32), net.op("Cast", mask, to=ir.DataType.FLOAT))
    penalty = net.op("Mul", hidden, net.constant(MASKED, np.float32))
    return net.op("Unsqueeze", penalty, net.constant([1, 2], np.int64))


def _attend(net: NetworkBuilder, x: ir.Value, penalty: ir.Value) -> ir.Value:
    """Add multi-head self-attention: Vaswani et al., Attention Is All You Need, 2017, section 3.2."""
    query, key, value = (_split_heads(net, net.linear(x, WIDTH, gain=1), order) for order in (ROWS, COLUMNS, ROWS))
    scale = net.constant(1 / math.sqrt(WIDTH // HEADS), np.float32)
    scores = net.op("Mul", net.op("MatMul", query, key), scale)
    weights = net.op("Softmax", net.op("Add", scores, penalty), axis=-1)
    heads = net.op("Transpose", net.op("MatMul", weights, value), perm=ROWS)
    joined = net.op("Reshape", heads, net.constant([0, 0, WIDTH], np.int64))
    return net.linear(joined, WIDTH, gain=1)


def _split_heads(net: NetworkBuilder, x: ir.Value, order: tuple[int, ...]) -> ir.Value:
    split = net.op("Reshape", x, net.constant([0, 0, HEADS, WIDTH // HEADS], np.int64))
    return net.op("Transpose", split, perm=order)


def _gelu(net: NetworkBuilder, x: ir.Value) -> ir.Value:
    """Add GELU, ``x * (1 + erf(x / sqrt(2))) / 2``: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016."""
    erf = net.op("Erf", net.op("Div", x, net.constant(math.sqrt(2), np.float32)))
    doubled = net.op("Mul", x, net.op("Add", erf, net.constant(1, np.float32)))
    return net.op("Mul", doubled, net.constant(0.5, np.float32))


def _normalize(net: NetworkBuilder, name: str, x: ir.Value) -> ir.Value:
    scale, bias = net.filled(f"{name}.scale", WIDTH, value=1.0), net.filled(f"{name}.bias", WIDTH)
    return net.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=EPSILON)
