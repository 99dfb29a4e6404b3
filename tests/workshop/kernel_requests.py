"""Requests for the operators of ``kernel_models`` that small numbers of one shape don't fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALL = ""
"""Stands for inputs that aren't named."""

SHAPE = (2, 3)
"""Of inputs that nothing is said of: whole numbers from 0 up."""

_IMAGE = {ALL: (1, 1, 4, 4)}
_CELL = {"X": (3, 1, 2), "R": (1, 2, 2)}

INPUTS: Mapping[str, Mapping[str, Any]] = {
    "AffineGrid": {"theta": (1, 2, 3), "size": [1, 1, 2, 3]},
    "Attention": _IMAGE,
    "AveragePool": _IMAGE,
    "BatchNormalization": {ALL: (3,), "X": (2, 3)},
    "BlackmanWindow": {ALL: 5},
    "Col2Im": {"input": (1, 4, 9), "image_shape": [4, 4], "block_shape": [2, 2]},
    "Conv": _IMAGE,
    "ConvInteger": _IMAGE,
    "ConvTranspose": _IMAGE,
    "CumProd": {"axis": 0},
    "CumSum": {"axis": 0},
    "DFT": {"input": (1, 4, 1), "axis": 1},
    "DeformConv": {"X": (1, 1, 4, 4), "W": (1, 1, 2, 2), "offset": (1, 8, 3, 3)},
    "DepthToSpace": _IMAGE,
    "DequantizeLinear": {"x_scale": 0.5},
    "Det": {ALL: (3, 3)},
    "Dropout": {"ratio": 0.5},
    "Einsum": {ALL: (3,)},
    "Expand": {"shape": [2, 3]},
    "Gather": {"indices": [0, 1]},
    "GatherElements": {"indices": [[0, 1, 1]]},
    "GatherND": {"indices": [[0, 1]]},
    "Gemm": {ALL: (3, 3)},
    "GlobalAveragePool": _IMAGE,
    "GlobalLpPool": _IMAGE,
    "GlobalMaxPool": _IMAGE,
    "GridSample": {"X": (1, 1, 4, 4), "grid": (1, 2, 2, 2)},
    "GroupNormalization": {"X": (1, 2, 3), ALL: (2,)},
    "GRU": {**_CELL, "W": (1, 6, 2), "R": (1, 6, 2)},
    "HammingWindow": {ALL: 5},
    "HannWindow": {ALL: 5},
    "If": {"x0": False},
    "InstanceNormalization": {"input": (1, 2, 3), ALL: (2,)},
    "LRN": _IMAGE,
    "LSTM": {**_CELL, "W": (1, 8, 2), "R": (1, 8, 2)},
    "LayerNormalization": {ALL: (3,), "X": (2, 3)},
    "Loop": {"x0": 3, "x1": True, "x2": (3,)},
    "LpPool": _IMAGE,
    "MatMul": {ALL: (3, 3)},
    "MatMulInteger": {ALL: (3, 3)},
    "MaxPool": _IMAGE,
    "MaxRoiPool": {"X": (1, 1, 4, 4), "rois": [[0, 0, 0, 2, 2]]},
    "MaxUnpool": {**_IMAGE, "I": (1, 1, 4, 4)},
    "MelWeightMatrix": {ALL: 8, "sample_rate": 8000, "lower_edge_hertz": 0.0, "upper_edge_hertz": 4000.0},
    "NonMaxSuppression": {"boxes": [[[0, 0, 1, 1], [0, 0, 3, 3]]], "scores": [[[0.5, 0.7]]]},
    "OneHot": {"indices": [0, 2], "depth": 3, "values": [0, 1]},
    "Optional": {"input": SHAPE},
    "OptionalHasElement": {"input": SHAPE},
    "Pad": {"pads": [0, 1, 1, 0]},
    "QLinearConv": {ALL: 1, "x": (1, 1, 4, 4), "w": (1, 1, 2, 2), "x_scale": 0.5, "y_scale": 0.5},
    "QLinearMatMul": {ALL: 1, "a": (3, 3), "b": (3, 3), "a_scale": 0.5, "y_scale": 0.5},
    "QuantizeLinear": {"y_scale": 0.5},
    "RNN": {**_CELL, "W": (1, 2, 2)},
    "RMSNormalization": {"scale": (3,)},
    "Range": {"start": 1, "limit": 9, "delta": 3},
    "Reshape": {"shape": [3, -1]},
    "Resize": {"X": (1, 1, 4, 4), "roi": [], "scales": [1, 1, 2, 2]},
    "ReverseSequence": {"input": (3, 2), "sequence_lens": [1, 3]},
    "RoiAlign": {"X": (1, 1, 4, 4), "rois": [[0, 0, 2, 2]], "batch_indices": [0]},
    "RotaryEmbedding": {"X": (1, 1, 2, 4), "cos_cache": (1, 2, 2), "sin_cache": (1, 2, 2)},
    "STFT": {"signal": (1, 16, 1), "frame_step": 4, "frame_length": 8},
    "Scan": {"x0": (2, 3), "x1": (2, 2, 3)},
    "Scatter": {"indices": [[0, 1, 1]], "updates": (1, 3)},
    "ScatterElements": {"indices": [[0, 1, 1]], "updates": (1, 3)},
    "ScatterND": {"indices": [[0, 1]], "updates": (1,)},
    "SequenceAt": {"position": 1},
    "Slice": {"starts": [0], "ends": [1]},
    "SpaceToDepth": _IMAGE,
    "Split": {"split": [2]},
    "StringNormalizer": {ALL: (3,)},
    "TensorScatter": {"past_cache": (1, 1, 4, 4), "update": (1, 1, 2, 4)},
    "Tile": {"repeats": [2, 1]},
    "TopK": {"K": [2]},
    "Unsqueeze": {"axes": [0]},
    "Upsample": {"X": (1, 1, 4, 4), "scales": [1, 1, 2, 2]},
}
"""By operator and input: a shape, or values. An optional input that is named is given."""

ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "BitShift": {"direction": "RIGHT"},
    "DepthToSpace": {"blocksize": 1},
    "Einsum": {"equation": "i->i"},
    "GRU": {"hidden_size": 2},
    "LSTM": {"hidden_size": 2},
    "Mod": {"fmod": 1},
    "Multinomial": {"dtype": 7},
    "Pad": {"pads": [0, 1, 1, 0]},
    "RNN": {"hidden_size": 2},
    "RegexFullMatch": {"pattern": "a"},
    "Reshape": {"shape": [3, -1]},
    "TfIdfVectorizer": {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 1,
        "max_skip_count": 0,
        "pool_int64s": [1, 2],
        "ngram_counts": [0],
        "ngram_indexes": [0, 1],
    },
    "Unsqueeze": {"axes": [0]},
    "Upsample": {"scales": [1.0, 1.0, 2.0, 2.0], "height_scale": 2.0, "width_scale": 2.0},
}
"""By operator, where one of the required value wouldn't do, or more than the required are needed."""

UNLIKE_ITSELF = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())
"""Operators whose answers to equal requests differ."""
