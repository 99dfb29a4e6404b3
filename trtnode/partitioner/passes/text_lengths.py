"""Bounds on the text that operators make: a node of a few bytes can double a string, and no library counts that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from trtnode.partitioner.model.values import ONNX_DOMAINS, has_subgraphs, tensor_of

KNOWN_DOMAINS = frozenset((*ONNX_DOMAINS, "ai.onnx.ml"))

NUMBER_BYTES = 32
"""The longest text of a number."""

CASE_GROWTH = 2
"""Bytes of a letter in UTF-8 over those of its other case, at most."""

SPLITTING_OPS = frozenset((("", "StringSplit"), ("com.microsoft", "Tokenizer")))
"""Operators whose results hold parts of their input's texts, each once."""

KEEPING_OPS = frozenset(
    "ArrayFeatureExtractor Cast CastMap CategoryMapper Compress Concat Flatten Identity LabelEncoder LinearClassifier"
    " Reshape SVMClassifier Slice Split Squeeze StringNormalizer Transpose TreeEnsembleClassifier Unique"
    " Unsqueeze".split()
)
"""Operators whose result has no more elements than their inputs together."""


def makes_text(op: ir.Node) -> bool:
    """Return whether a node may have strings as results: by their type, else by its attributes and inputs."""
    kinds = {value.dtype for value in op.outputs}
    if ir.DataType.STRING in kinds or None not in kinds:
        return ir.DataType.STRING in kinds
    if op.domain not in KNOWN_DOMAINS:
        return False
    return is_cast_to_text(op) or longest_attribute(op) > 0 or any(v is not None and is_text(v) for v in op.inputs)


def is_text(value: ir.Value) -> bool:
    """Return whether a value is known to hold strings."""
    return value.dtype == ir.DataType.STRING


def is_cast_to_text(op: ir.Node) -> bool:
    """Return whether a node writes numbers as text."""
    return op.op_type == "CastMap" or ("to" in op.attributes and op.attributes["to"].value == ir.DataType.STRING)


def longest_result(op: ir.Node, known: Mapping[ir.Value, float]) -> float:
    """Return a bound of the bytes of each string in a node's results; infinite where nothing bounds them.

    Args:
        op: A node that makes text.
        known: The same of values that it may read, without constants.
    """
    if has_subgraphs(op) or (op.domain not in KNOWN_DOMAINS and (op.domain, op.op_type) not in SPLITTING_OPS):
        return math.inf
    read = [longest_element(value, known) for value in op.inputs if value is not None]
    if op.op_type == "StringConcat":
        return sum(read)
    longest = max((*read, longest_attribute(op), NUMBER_BYTES if is_cast_to_text(op) else 0))
    return longest * (CASE_GROWTH if op.op_type == "StringNormalizer" else 1)


def longest_element(value: ir.Value, known: Mapping[ir.Value, float]) -> float:
    """Return a bound of the bytes of each string in a value; 0 of numbers."""
    if value.const_value is not None:
        return _longest(tensor_of(value)) if is_text(value) else 0
    return known.get(value, math.inf if is_text(value) else 0)


def longest_attribute(op: ir.Node) -> int:
    """Return the bytes of the longest string that an attribute may give a result."""
    return max(map(_longest_of, op.attributes.values()), default=0) if op.attributes else 0


def _longest_of(attribute: ir.Attr) -> int:
    kind = attribute.type
    if kind == ir.AttributeType.STRINGS:
        return _most_bytes(attribute.as_strings())
    if kind == ir.AttributeType.TENSOR:
        return _longest(attribute.as_tensor())
    return len(attribute.as_string().encode()) if attribute.name in ("default_string", "value_string") else 0


def _longest(tensor: ir.TensorProtocol) -> int:
    if tensor.dtype != ir.DataType.STRING:
        return 0
    return _most_bytes(tensor.numpy().reshape(-1).tolist())


def _most_bytes(texts: Iterable[str | bytes]) -> int:
    return max((len(one if isinstance(one, bytes) else one.encode()) for one in texts), default=0)
