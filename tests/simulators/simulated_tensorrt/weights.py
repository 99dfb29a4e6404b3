"""Weights of a model: their size and hash, and leaving them out."""

from __future__ import annotations

import hashlib
import math

import onnx
from onnx import ModelProto, TensorProto, numpy_helper

STRIPPED_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})


def size_bytes(tensor: TensorProto) -> int:
    """Of a weight, whether its values are there or not."""
    return math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def without_values(tensor: TensorProto) -> TensorProto:
    """Name, type and shape of a weight."""
    return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def hash_weights(tensor: TensorProto) -> str:
    """Of the values alone, however they are stored."""
    return hashlib.sha256(numpy_helper.to_array(tensor).tobytes()).hexdigest()


def strip(source: ModelProto) -> tuple[ModelProto, dict[str, str]]:
    """Leave out the weights that can be put back.

    Returns:
        Another model, and the hash of each weight that it lacks, by name.
    """
    model = ModelProto()
    model.CopyFrom(source)
    weights = [t for t in model.graph.initializer if t.data_type in STRIPPED_TYPES]
    hashes = {t.name: hash_weights(t) for t in weights}
    for tensor in weights:
        tensor.CopyFrom(without_values(tensor))
    return model, hashes
