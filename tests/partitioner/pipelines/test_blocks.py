"""Building blocks compute as Pillow and numpy do."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from PIL import Image

from plain_runtime import passes_checker, run
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.pipelines.blocks import (
    Block,
    Cast,
    CenterCrop,
    ChangeLayout,
    Normalize,
    Resize,
    Softmax,
    SwapColors,
    TopK,
)
from trtnode.partitioner.pipelines.chaining import Source, Stage, chain_stages
from trtnode.partitioner.pipelines.node_writer import Layout

UINT8, FLOAT, FLOAT16 = ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.FLOAT16
ANY_IMAGES = Source(UINT8, (None, None, None, 3))

Compute = Callable[..., list[Any]]


@pytest.fixture
def compute(tmp_path: pathlib.Path) -> Compute:
    """Run blocks in front of a model that hands on what it gets, or behind it."""

    def compute(given: np.ndarray, source: Source, *blocks: Block, behind: bool = False) -> list[Any]:
        kind = ir.DataType.from_numpy(given.dtype) if behind else _result_type(source, blocks)
        path = tmp_path / "identity.onnx"
        path.write_bytes(_identity(kind, given.ndim, given.shape[-1] if behind else None))
        stages = [Stage(place=("stage", n), step=block) for n, block in enumerate(blocks)]
        first = [Stage(place=("source",), step=source)]
        model = chain_stages(path, [] if behind else first + stages, stages if behind else [])
        proto = embed_engines(Graph.of(model), (), {})
        assert passes_checker(proto)
        return run(proto, {"x": given})

    return compute


def _result_type(source: Source, blocks: tuple[Block, ...]) -> ir.DataType:
    kind = source.dtype
    for block in blocks:
        if isinstance(block, Cast):
            kind = block.dtype
        elif isinstance(block, Resize | Normalize) and not kind.is_floating_point():
            kind = FLOAT
    return kind


def _identity(kind: ir.DataType, rank: int, last: int | None) -> bytes:
    shape = [f"d{n}" for n in range(rank - 1)] + [last or "last"]
    values = [onnx.helper.make_tensor_value_info(name, int(kind), shape) for name in ("x", "y")]
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [onnx.helper.make_opsetid("", 18)]
    return bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize("size", [(64, 48), (128, 96), (301, 77), (20, 30), (64, 200)])
def test_resize_is_pillows_but_for_its_rounding(compute: Compute, size: tuple[int, int]) -> None:
    given = images(2, *size, 3)

    (resized,) = compute(given, ANY_IMAGES, Resize((64, 48)))

    expected = [np.asarray(Image.fromarray(one).resize((48, 64), Image.Resampling.BILINEAR)) for one in given]
    assert resized.dtype == np.float32
    assert np.abs(resized - np.stack(expected)).max() <= 1  # of 255: Pillow rounds after each of two directions


def test_resize_finds_height_and_width_in_either_layout(compute: Compute) -> None:
    given = images(1, 40, 30, 3)

    (last,) = compute(given, ANY_IMAGES, Resize((20, 12)), ChangeLayout("nchw"))
    (first,) = compute(given, ANY_IMAGES, ChangeLayout("nchw"), Resize((20, 12)))

    np.testing.assert_allclose(first, last, atol=1e-3)


@pytest.mark.parametrize(("size", "top", "left"), [((4, 6), 3, 2), ((5, 5), 2, 2), ((10, 10), 0, 0)])
def test_center_crop_keeps_the_middle(compute: Compute, size: tuple[int, int], top: int, left: int) -> None:
    given = images(2, 10, 10, 3)

    (cropped,) = compute(given, Source(UINT8, (None, 10, 10, 3)), CenterCrop(size))

    np.testing.assert_array_equal(cropped, given[:, top : top + size[0], left : left + size[1]])


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_colours_are_swapped_in_either_layout(compute: Compute, layout: Layout) -> None:
    given = images(2, 5, 4, 3) if layout == "nhwc" else images(2, 3, 5, 4)
    source = Source(UINT8, (None, *given.shape[1:]), layout)

    (swapped,) = compute(given, source, SwapColors())

    np.testing.assert_array_equal(swapped, given[..., ::-1] if layout == "nhwc" else given[:, ::-1])


def test_layouts_change_there_and_back(compute: Compute) -> None:
    given = images(2, 5, 4, 3)

    (first,) = compute(given, ANY_IMAGES, ChangeLayout("nchw"))
    (last,) = compute(given, ANY_IMAGES, ChangeLayout("nchw"), ChangeLayout("nhwc"))

    np.testing.assert_array_equal(first, given.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(last, given)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_normalize_is_exact(compute: Compute, layout: Layout) -> None:
    given = images(2, 5, 4, 3)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    order: list[Block] = [ChangeLayout("nchw")] if layout == "nchw" else []

    (normalized,) = compute(given, ANY_IMAGES, *order, Normalize(1 / 255, mean, std))

    expected = (given * np.float32(1 / 255) - np.float32(mean)) / np.float32(std)
    np.testing.assert_array_equal(normalized, expected if layout == "nhwc" else expected.transpose(0, 3, 1, 2))


def test_normalize_with_one_number_is_for_all_channels(compute: Compute) -> None:
    given = images(1, 5, 4, 3)

    (normalized,) = compute(given, ANY_IMAGES, Normalize(1.0, (127.5,), (127.5,)))

    np.testing.assert_array_equal(normalized, (given - np.float32(127.5)) / np.float32(127.5))


def test_normalize_keeps_floating_point_types(compute: Compute) -> None:
    given = images(1, 5, 4, 3).astype(np.float16)

    (normalized,) = compute(given, Source(FLOAT16, (None, None, None, 3)), Normalize(0.5, (1.0,), (2.0,)))

    assert normalized.dtype == np.float16
    np.testing.assert_array_equal(normalized, (given * np.float16(0.5) - np.float16(1)) / np.float16(2))


def test_cast_changes_the_type(compute: Compute) -> None:
    given = images(1, 5, 4, 3)

    (cast,) = compute(given, ANY_IMAGES, Cast(FLOAT16))

    assert cast.dtype == np.float16
    np.testing.assert_array_equal(cast, given)


def test_softmax_gives_probabilities_of_the_last_axis(compute: Compute) -> None:
    given = np.array([[0, 1, 2], [1000, 1000, 1000]], np.float32)

    (probabilities,) = compute(given, ANY_IMAGES, Softmax(), behind=True)

    powers = np.exp(given - given.max(-1, keepdims=True))
    np.testing.assert_allclose(probabilities, powers / powers.sum(-1, keepdims=True), rtol=1e-6)


def test_the_best_come_first_and_of_equal_ones_the_first(compute: Compute) -> None:
    given = np.array([[1, 3, 3, 0], [5, 5, 5, 5]], np.float32)

    scores, labels = compute(given, ANY_IMAGES, TopK(3, ("a", "b", "ç", "d")), behind=True)

    assert scores.tolist() == [[3, 3, 1], [5, 5, 5]]
    assert labels.tolist() == [["b", "ç", "a"], ["a", "b", "ç"]]


def test_without_labels_classes_have_numbers(compute: Compute) -> None:
    scores, labels = compute(np.array([[1, 3, 2]], np.float32), ANY_IMAGES, TopK(2), behind=True)

    assert (scores.tolist(), labels.tolist(), labels.dtype) == ([[3, 2]], [[1, 2]], np.int64)


@pytest.mark.parametrize(
    ("shape", "blocks", "problem"),
    [
        ((None, None, 3), [Resize((2, 2))], "takes images with four dimensions, but gets"),
        ((None, None, None, 3), [CenterCrop((2, 2))], "needs images of a known height and width; put resize before it"),
        ((None, 4, 4, 3), [CenterCrop((5, 4))], r"\[5, 4\] is larger than the images, which are \[4, 4\]"),
        ((None, 4, 4, 1), [SwapColors()], "needs images of three colours"),
        ((None, 4, 4, 3), [ChangeLayout("nhwc")], "the images are nhwc already; leave it out"),
        ((None, 4, 4, 1), [Normalize(1.0, (1.0, 2.0), (1.0,))], "mean has 2 numbers, but the images have 1 channels"),
    ],
)
def test_blocks_refuse_what_they_do_not_fit(
    compute: Compute, shape: tuple[int | None, ...], blocks: list[Block], problem: str
) -> None:
    with pytest.raises(PipelineError, match=problem) as caught:
        compute(images(1, 4, 4, 3), Source(UINT8, shape), *blocks)

    assert caught.value.place == ("stage", 0)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (TopK(4), r"k is 4, but there are only 3 classes in \[d0, 3\]"),
        (TopK(1, ("a", "b")), "there are 2 labels, but 3 classes"),
    ],
)
def test_classes_must_be_as_many_as_labels(compute: Compute, block: Block, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        compute(np.zeros((1, 3), np.float32), ANY_IMAGES, block, behind=True)
