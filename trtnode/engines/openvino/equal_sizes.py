"""Labels sizes that must be equal, which ONNX Runtime checks. OpenVINO broadcasts where one is 1, or ignores it.

Sizes of one name are equal: those of an engine's inputs are compared at each request, and others follow from them. The
table has the operators whose refusals engines lose; all others refuse what ONNX Runtime does. Left are requests that
have nothing to compute: a convolution of an image smaller than its kernel gives a tensor without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.graph.view import Node
from trtnode.partitioner.model.values import Dimension, dimensions, input_of

Pair = tuple[Dimension, Dimension]
"""Two sizes, the first of which may not differ from the second."""


def check_sizes(node: Node) -> Verdict:
    """Refuse a node some of whose inputs may be broadcast where ONNX Runtime refuses them."""
    pairs = MUST_BE_EQUAL.get(node.op_type)
    for one, other in pairs(node) if pairs else ():
        if one is None or one != other:
            detail = f"{node.op_type} in OpenVINO answers sizes that ONNX Runtime refuses."
            return Verdict(ReasonCode.UNKNOWN_SHAPE, f"{detail} Sizes {_shown(one)} and {_shown(other)} may differ.")
    return SUPPORTED


def _shown(size: Dimension) -> str:
    return "?" if size is None else str(size)


def _sizes(node: Node, index: int) -> tuple[Dimension, ...]:
    value = input_of(node.op, index)
    return (dimensions(value) or ()) if value is not None else ()


def _of_channels(*others: int) -> Callable[[Node], Iterator[Pair]]:
    """Compare the only size of some inputs with the channels of the first one."""

    def pairs(node: Node) -> Iterator[Pair]:
        return ((size, channels) for channels in _sizes(node, 0)[1:2] for i in others for size in _sizes(node, i))

    return pairs


def _clip(node: Node) -> Iterator[Pair]:
    return ((size, 1) for index in (1, 2) for size in _sizes(node, index))


def _bias(node: Node) -> Iterator[Pair]:
    return zip(_sizes(node, 2), _sizes(node, 1)[:1], strict=False)


def _scale(node: Node) -> Iterator[Pair]:
    """A scale may be 1 where the input isn't, but not the other way round."""
    return _spread(_sizes(node, 1), _sizes(node, 0))


def _gemm(node: Node) -> Iterator[Pair]:
    a, b = _sizes(node, 0), _sizes(node, 1)
    row = a[1:] if node.op.attributes.get_int("transA", 0) else a[:1]
    column = b[:1] if node.op.attributes.get_int("transB", 0) else b[1:]
    return _spread(_sizes(node, 2), (*row, *column))


def _spread(small: tuple[Dimension, ...], large: tuple[Dimension, ...]) -> Iterator[Pair]:
    return (pair for pair in zip(reversed(small), reversed(large), strict=False) if pair[0] != 1)


def _attention(node: Node) -> Iterator[Pair]:
    query, key, value = (_sizes(node, index) for index in range(3))
    yield from zip((*key[:1], *value[:1]), query[:1] * 2, strict=False)
    yield from zip(key[-2:-1], value[-2:-1], strict=False)
    if len(query) == len(key) == 4:
        yield query[-1], key[-1]


def _rotary_embedding(node: Node) -> Iterator[Pair]:
    rows, cosines, sines, places = (_sizes(node, index) for index in range(4))
    yield from zip(cosines, sines, strict=False)
    yield from zip(places or cosines[:2], (*rows[:1], *rows[-2:-1]), strict=False)


def _gather_nd(node: Node) -> Iterator[Pair]:
    count = node.op.attributes.get_int("batch_dims", 0)
    return zip(_sizes(node, 0)[:count], _sizes(node, 1)[:count], strict=False)


def _affine_grid(node: Node) -> Iterator[Pair]:
    wanted: ir.Value | None = node.op.inputs[1]
    if wanted is not None and wanted.const_value is not None:
        yield from zip(wanted.const_value.numpy()[:1].tolist(), _sizes(node, 0), strict=False)


def _squeeze(node: Node) -> Iterator[Pair]:
    given, sizes = node.op.inputs[1:2], _sizes(node, 0)
    constant = given[0].const_value if given and given[0] is not None else None
    axes = node.op.attributes.get_ints("axes", ()) if constant is None else constant.numpy().ravel().tolist()
    return ((sizes[axis], 1) for axis in axes if -len(sizes) <= axis < len(sizes))


MUST_BE_EQUAL: dict[str, Callable[[Node], Iterator[Pair]]] = {
    "AffineGrid": _affine_grid,
    "Attention": _attention,
    "BatchNormalization": _of_channels(1, 2, 3, 4),
    "Clip": _clip,
    "Conv": _bias,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "InstanceNormalization": _of_channels(1, 2),
    "LayerNormalization": _scale,
    "RMSNormalization": _scale,
    "RotaryEmbedding": _rotary_embedding,
    "Squeeze": _squeeze,
}
"""The sizes that must be equal, by operator."""
