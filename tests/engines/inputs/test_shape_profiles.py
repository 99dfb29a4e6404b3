"""Shapes that engines are built for: read, checked against the model, and followed to what each segment reads."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.engines.errors import BuildError, InputShapesError
from trtnode.engines.inputs.samples import SampledSizes
from trtnode.engines.inputs.shape_profiles import check_profiles, follow, sampled, segment_profile
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import partition_graph
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop

ZEROS = ", ".join("0" * (8 * 3 * 3 * 3))
NET = (
    f"g (float[N,3,H,W] x) => (float[N,K] y) <float[8,3,3,3] w = {{{ZEROS}}}>"
    """
{ c = Conv<strides = [2,2], pads = [1,1,1,1]>(x, w) a = Relu(c) b = Softsign(a) y = Flatten(b) }"""
)


def one(*sizes: int) -> ShapeRange:
    return ShapeRange(min=sizes, opt=sizes, max=sizes)


def cut(workshop: Workshop, text: str, native: str = "Softsign") -> Any:
    graph = clean_up(load_model(workshop.write(text)))
    refused = Verdict(ReasonCode.UNSUPPORTED_OP, "native")
    return partition_graph(graph, lambda node: refused if node.op_type == native else SUPPORTED, PartitionOptions())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1x3x224x224", one(1, 3, 224, 224)),
        ("7", one(7)),
        ("", one()),
        ("1x3,4x3,8x3", ShapeRange(min=(1, 3), opt=(4, 3), max=(8, 3))),
        ("0x3,0x3,8x3", ShapeRange(min=(0, 3), opt=(0, 3), max=(8, 3))),
        ("=7", ShapeRange(min=(7,), opt=(7,), max=(7,), values=True)),
        ("=-1x3,0x3,8x3", ShapeRange(min=(-1, 3), opt=(0, 3), max=(8, 3), values=True)),
    ],
)
def test_shapes_are_read(text: str, expected: ShapeRange) -> None:
    assert ShapeRange.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1x3,4x3", "should be one shape, such as 1x3x224x224, or three of them"),
        ("1x3,4x3,8x3,9x3", "or three of them"),
        ("1x-3", "should be one shape"),
        ("=1.5", "should be one list of values, such as =1x3x-1, or three of them"),
        ("=", "should be one list of values"),
        ("=2,1,3", "1 is less than 2 somewhere"),
        ("axb", "should be one shape"),
        ("1x", "should be one shape"),
        ("4x3,1x3,8x3", "1x3 is less than 4x3 somewhere; min <= opt <= max must hold"),
        ("1x3,9x3,8x3", "8x3 is less than 9x3 somewhere"),
        ("1x3,4x3x1,8x3", "4x3x1 should have 2 dimensions, like 1x3"),
    ],
)
def test_text_that_is_no_shape_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShapeRange.parse(text)


X = TensorSpec(name="x", dtype=ir.DataType.FLOAT, shape=("N", 3))
SIZES = TensorSpec(name="sizes", dtype=ir.DataType.INT64, shape=(2,))
LIMIT = TensorSpec(name="limit", dtype=ir.DataType.INT32, shape=())
FIXED = TensorSpec(name="z", dtype=ir.DataType.FLOAT, shape=(4,))
BATCHES = ShapeRange(min=(1, 3), opt=(4, 3), max=(8, 3))


def test_shapes_that_fit_a_model_are_accepted() -> None:
    inputs = (X, SIZES, LIMIT, FIXED)

    check_profiles(inputs, [{"x": BATCHES}, {"x": BATCHES, "sizes": one(224, 224), "limit": one(5), "z": one(4)}])


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"y": one(1)}, "input 'y', profile 0: the model has no such input; it has x, sizes, limit, z"),
        ({}, "input 'x', profile 0: its shape is not fixed, so it needs one here too"),
        ({"x": one(1, 4)}, "1x4 does not fit the model's, which is N x 3"),
        ({"x": one(1, 3, 1)}, "1x3x1 does not fit the model's, which is N x 3"),
        ({"x": ShapeRange(min=(1, 1), opt=(1, 3), max=(1, 3))}, "1x1 to 1x3 does not fit"),
        ({"x": BATCHES, "z": one(5)}, "which is 4"),
        ({"x": BATCHES, "sizes": one(1)}, "input 'sizes', profile 0: it has 2 elements, not 1"),
        ({"x": BATCHES, "limit": one(1, 2)}, "it has 1 elements, not 2"),
        ({"x": ShapeRange.parse("=1x3")}, r"takes no values: it is float32\[N, 3\], and they belong to a few integers"),
    ],
)
def test_shapes_that_do_not_fit_a_model_are_refused(profile: dict[str, ShapeRange], message: str) -> None:
    with pytest.raises(InputShapesError, match=message):
        check_profiles((X, SIZES, LIMIT, FIXED), [profile])


def test_shapes_of_the_inputs_are_followed_to_what_each_segment_reads(workshop: Workshop) -> None:
    partition = cut(workshop, NET)
    images = ShapeRange(min=(1, 3, 32, 32), opt=(4, 3, 64, 64), max=(8, 3, 64, 128))

    known = follow(partition.graph, {"x": images})

    first, second = (segment_profile(segment, known, 0) for segment in partition.segments)
    assert first == {"x": images}
    assert second == {"b": ShapeRange(min=(1, 8, 16, 16), opt=(4, 8, 32, 32), max=(8, 8, 32, 64))}
    assert [v.shape for v in partition.graph.inputs] == [ir.Shape(["N", 3, "H", "W"])]


def test_a_size_that_falls_where_the_input_grows_still_has_a_range(workshop: Workshop) -> None:
    text = """g (float[N,4] x) => (float[M,4] z) <int64[1] one = {1}, int64[1] ten = {10}, int64[1] zero = {0}>
    { s = Shape<start = 0, end = 1>(x) m = Sub(ten, s) e = Concat<axis = 0>(m, one) f = Expand(w, e)
      h = Softsign(f) z = Neg(h) }""".replace("int64[1] one", "float[1,4] w = {1,2,3,4}, int64[1] one")
    partition = cut(workshop, text)

    known = follow(partition.graph, {"x": ShapeRange(min=(1, 4), opt=(5, 4), max=(8, 4))})

    assert known.shapes["h"] == ShapeRange(min=(2, 4), opt=(5, 4), max=(9, 4))


def test_integers_that_shapes_are_computed_from_are_followed_as_numbers(workshop: Workshop) -> None:
    text = """g (float[6,4] x, int64[2] sizes) => (float[A,B] y) <int64[2] two = {2, 1}>
    { t = Mul(sizes, two) s = Identity(t) r = Softsign(x) y = Reshape(r, s) }"""
    partition = cut(workshop, text)

    known = follow(partition.graph, {"sizes": one(6, 2)})

    assert known.elements["sizes"] == one(6, 2)
    assert known.elements["t"] == one(12, 2)
    assert known.shapes["y"] == one(12, 2)


def test_shape_that_depends_on_values_is_told(workshop: Workshop) -> None:
    text = "g (float[N] x) => (int64[1,M] y) { i = NonZero(x) y = Neg(i) }"
    partition = cut(workshop, text, native="NonZero")

    with pytest.raises(BuildError, match="shape of 'i' does not follow from the inputs' shapes in profile 3"):
        segment_profile(partition.segments[0], follow(partition.graph, {"x": one(8)}), 3)


def test_samples_are_as_the_first_profile_says_that_inputs_are_best() -> None:
    sizes, images = one(2, 3), ShapeRange(min=(1, 3), opt=(4, 3), max=(8, 3))

    made = sampled((X, SIZES, FIXED), [{"x": images, "sizes": sizes}, {"x": one(1, 3)}])

    assert [spec.shape for spec in made] == [(4, 3), (2,), (4,)]
    assert made[1] == SampledSizes(name="sizes", dtype=ir.DataType.INT64, shape=(2,), elements=(2, 3))
    assert sampled((X,), ()) == (X,)


def test_sequences_are_asked_no_shape() -> None:
    sequence = TensorSpec(name="s", dtype=None, shape=None)

    check_profiles((X, sequence), [{"x": BATCHES}])
