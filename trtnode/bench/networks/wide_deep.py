"""Wide & Deep."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder

VOCABULARY, FIELDS, EMBEDDING = 184_965, 39, 80
LAYERS = (1024, 512, 256, 128)


def widedeep() -> ir.Model:
    """Build Wide & Deep for click prediction on Criteo's data, in the shape of MindSpore's model collection.

    Cheng et al., Wide & Deep Learning for Recommender Systems, 2016. A row of 39 fields is an id and a weight each.
    Its 18,867,223 parameters: an embedding of 80 for each of 184,965 ids (14,797,200), a weight for each id and a bias
    in the wide part (184,966), and layers of 1024, 512, 256, 128 and one unit over all embeddings (3,195,904 +
    524,800 + 131,328 + 32,896 + 129).
    """
    net = NetworkBuilder("widedeep")
    ids = net.input("ids", FIELDS, dtype=ir.DataType.INT32)
    weights = net.op("Unsqueeze", net.input("weights", FIELDS), net.constant([2], np.int64))
    logit = net.op("Add", _wide(net, ids, weights), _deep(net, ids, weights))
    return net.finish(logit=logit, probability=net.op("Sigmoid", logit))


def _wide(net: NetworkBuilder, ids: ir.Value, weights: ir.Value) -> ir.Value:
    table = net.normal("wide.weight", VOCABULARY, 1, std=1 / math.sqrt(FIELDS))
    terms = net.op("Mul", net.op("Gather", table, ids), weights)
    total = net.op("ReduceSum", terms, net.constant([1], np.int64), keepdims=0)
    return net.op("Add", total, net.filled("wide.bias", 1))


def _deep(net: NetworkBuilder, ids: ir.Value, weights: ir.Value) -> ir.Value:
    table = net.normal("deep.embedding", VOCABULARY, EMBEDDING, std=1)
    x = net.op("Flatten", net.op("Mul", net.op("Gather", table, ids), weights))
    for units in LAYERS:
        x = net.op("Relu", net.linear(x, units))
    return net.linear(x, 1)
