"""Images in tiles: equal to the whole image, for any size, overlap and scale."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnx_ir
import pytest
import tritonclient.grpc as triton
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Starter
from trtnode.engines.errors import InvalidInputError
from trtnode.engines.model_facts import ModelFacts
from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.pipelines.tiles import TileAxis
from trtnode.serving.config.load import load_config
from trtnode.serving.errors import ConfigError
from trtnode.serving.executables.tiled import TiledExecutable
from trtnode.serving.schema.pipeline import TilesConfig

PLACE = ("preprocess", 0, "tiles")


def blurred(images: np.ndarray, radius: int) -> np.ndarray:
    """The sum of each pixel's surroundings, in which zeros stand beyond the edge, as of a padded convolution."""
    padded = np.pad(images, ((0, 0), (0, 0), (radius, radius), (radius, radius)))
    size = 2 * radius + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    return windows.sum((-2, -1), dtype=images.dtype)


class Model:
    """Blurs images, then repeats or drops pixels."""

    def __init__(
        self,
        batch: int,
        size: Sequence[int],
        *,
        radius: int = 0,
        scale: Fraction = Fraction(1),
        dtype: type = np.float32,
        layout: str = "nchw",
    ) -> None:
        self.radius, self.scale, self.layout, self.batches = radius, scale, layout, 0
        shape = (batch, 2, *size) if layout == "nchw" else (batch, *size, 2)
        element = onnx_ir.DataType.from_numpy(np.dtype(dtype))
        self.inputs = (TensorSpec(name="x", dtype=element, shape=shape),)
        self.outputs = (TensorSpec(name="y", dtype=element, shape=None),)
        self.facts = ModelFacts()

    def whole(self, images: np.ndarray) -> np.ndarray:
        planes = images if self.layout == "nchw" else np.moveaxis(images, 3, 1)
        planes = blurred(planes, self.radius)
        step, repeat = self.scale.denominator, self.scale.numerator
        planes = planes[:, :, ::step, ::step].repeat(repeat, 2).repeat(repeat, 3)
        return planes if self.layout == "nchw" else np.ascontiguousarray(np.moveaxis(planes, 1, 3))

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        assert feeds["x"].shape == self.inputs[0].shape
        self.batches += 1
        return {"y": self.whole(feeds["x"])}

    def close(self) -> None: ...


def tiled(model: Model, **settings: Any) -> TiledExecutable:
    config = TilesConfig(size=settings.pop("size"), layout=model.layout, **settings)
    return TiledExecutable(model, config, model.layout, PLACE)  # type: ignore[arg-type]


@settings(max_examples=150)
@given(st.data())
def test_tiles_that_overlap_enough_give_what_the_whole_image_gives(data: st.DataObject) -> None:
    """The model sees a quarter of the overlap; beyond the image it sees zeros, in a tile as in the whole.

    One that shrinks images and repeats what is left sees as many pixels more as it leaves out.
    """
    radius = data.draw(st.integers(0, 2))
    align = data.draw(st.sampled_from([1, 2, 4]))
    scale = data.draw(st.sampled_from([Fraction(1), Fraction(2), Fraction(3), Fraction(1, align), Fraction(3, align)]))
    reach = radius + scale.denominator - 1
    overlap = align * data.draw(st.integers(-(-4 * reach // align), 9))
    tile = [align * data.draw(st.integers(max(1, 2 * overlap // align), 20)) for _ in range(2)]
    image = [size + align * data.draw(st.integers(0, 32 // align)) for size in tile]
    count, batch = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 5))
    layout = data.draw(st.sampled_from(["nchw", "nhwc"]))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32, np.uint8]))
    model = Model(batch, tile, radius=radius, scale=scale, dtype=dtype, layout=layout)
    pixels = np.random.default_rng(0).integers(0, 10, (count, 2, *image)).astype(dtype)
    pixels = pixels if layout == "nchw" else np.ascontiguousarray(np.moveaxis(pixels, 1, 3))

    result = tiled(model, size=tile, overlap=overlap, batch=batch, align=align).run({"x": pixels})["y"]

    wanted = model.whole(pixels)
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


@settings(max_examples=150)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(4, 16),
    st.integers(0, 8),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_away_from_seams_and_the_filled_up_edge_an_image_of_any_size_is_equal(
    height: int, width: int, tile: int, overlap: int, scale: int, radius: int
) -> None:
    overlap = min(overlap, tile // 2)
    model = Model(2, (tile, tile), radius=radius, scale=Fraction(scale))
    pixels = np.random.default_rng(1).standard_normal((1, 2, height, width)).astype(np.float32)

    result = tiled(model, size=(tile, tile), overlap=overlap, batch=2).run({"x": pixels})["y"]

    wanted = model.whole(pixels)
    assert result.shape == wanted.shape
    near = [_near_seams(length, tile, overlap, radius) for length in (height, width)]
    away = ~(near[0][:, None] | near[1][None]).repeat(scale, 0).repeat(scale, 1)
    np.testing.assert_allclose(result[:, :, away], wanted[:, :, away], rtol=1e-4, atol=1e-5)


def _near_seams(length: int, tile: int, overlap: int, radius: int) -> np.ndarray:
    """Pixels that see beyond an edge that isn't that of the image, in any tile that has them."""
    axis = TileAxis.cover(length, tile, overlap)
    near = np.zeros(axis.padded, bool)
    for start in axis.starts:
        near[start : start + radius] |= start > 0
        near[max(0, min(start + tile, length) - radius) : start + tile] |= start + tile != length
    return near[:length]


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(0, 32), st.integers(1, 16))
def test_tiles_cover_an_axis_and_share_as_much_as_they_should(length: int, tile: int, overlap: int, align: int) -> None:
    tile, overlap = tile * align, min(overlap, tile // 2) * align

    axis = TileAxis.cover(length, tile, overlap, align)

    gaps = np.diff(axis.starts)
    assert axis.starts[0] == 0
    assert length <= axis.padded < max(length, tile) + align
    assert all(start % align == 0 for start in axis.starts)
    assert (gaps > 0).all()
    assert (gaps <= tile - overlap).all()
    for blend in (True, False):
        total = np.zeros(axis.padded)
        for start, weight in zip(axis.starts, axis.weights(Fraction(1), blend=blend), strict=True):
            total[start : start + tile] += weight
        np.testing.assert_allclose(total, 1, rtol=1e-6)


def test_tiles_go_through_the_model_in_batches_of_one_size() -> None:
    model = Model(4, (8, 8))
    executable = tiled(model, size=(8, 8), overlap=0, batch=4)
    learnt = model.batches

    executable.run({"x": np.zeros((3, 2, 16, 24), np.float32)})

    assert model.batches - learnt == 5  # 18 tiles


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ((1, 2, 0, 8), "Input 'x' has no pixel"),
        ((1, 2, 100, 100), "Input 'x' has 10000 pixels, but 5000 are the most (max_pixels)"),
        ((1, 3, 8, 8), "Input 'x' must be float32[batch, 2, height, width]"),
    ],
)
def test_images_that_do_not_fit_are_refused(shape: tuple[int, ...], problem: str) -> None:
    executable = tiled(Model(1, (8, 8)), size=(8, 8), overlap=0, batch=1, max_pixels=5000)

    with pytest.raises(InvalidInputError) as caught:
        executable.run({"x": np.zeros(shape, np.float32)})

    assert problem in str(caught.value)


def test_a_scale_that_needs_alignment_and_results_that_are_no_images_are_refused_by_field() -> None:
    with pytest.raises(PipelineError, match=r"preprocess\[0\].tiles.align: output 'y' has 1/4 x 1/4 pixels"):
        tiled(Model(1, (8, 8), scale=Fraction(1, 4)), size=(8, 8), overlap=0, batch=1)
    model = Model(1, (8, 8))
    model.run = lambda feeds: {"y": np.zeros((1, 5), np.float32)}  # type: ignore[method-assign]
    with pytest.raises(PipelineError, match=r"preprocess\[0\].tiles: takes models that give images"):
        tiled(model, size=(8, 8), overlap=0, batch=1)


UPSCALE = """<ir_version: 8, opset_import: ["": 18]>
g (float[N, 3, H, W] image) => (float[N, 3, P, Q] large)
<float[3, 1, 3, 3] w = {0,1,0, 1,4,1, 0,1,0, 0,1,0, 1,4,1, 0,1,0, 0,1,0, 1,4,1, 0,1,0}, float[4] s = {1, 1, 2, 2}> {
    soft = Conv<group = 3, pads = [1, 1, 1, 1]>(image, w)
    large = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(soft, , s)
}"""
CLASSES = """<ir_version: 8, opset_import: ["": 18]>
g (float[N, 3, H, W] image) => (int64[N, H, W] classes) { classes = ArgMax<axis = 1, keepdims = 0>(image) }"""


def entry(folder: pathlib.Path, model: str, stages: str, engine: str = "native", more: str = "") -> str:
    onnx.save(onnx.parser.parse_model(model), folder / "m.onnx")
    return f"- {{name: m, path: m.onnx, engine: {engine}, preprocess: [{stages}], {more}}}\n"


def infer(client: triton.InferenceServerClient, pixels: np.ndarray, output: str) -> np.ndarray:
    datatype = "UINT8" if pixels.dtype == np.uint8 else "FP32"
    image = triton.InferInput("image", pixels.shape, datatype)
    image.set_data_from_numpy(pixels)
    return client.infer("m", [image]).as_numpy(output)


@pytest.mark.parametrize("engine", ["native", "openvino"])
@pytest.mark.parametrize("batching", ["", "batching: {max_batch_size: 4}"])
def test_a_server_answers_images_of_any_size(
    start: Starter, tmp_path: pathlib.Path, engine: str, batching: str
) -> None:
    running = start(entry(tmp_path, UPSCALE, "{tiles: {size: [16, 24], overlap: 4}}", engine, batching))
    whole = onnx.reference.ReferenceEvaluator(onnx.load(tmp_path / "m.onnx"))

    for shape in ((1, 3, 16, 24), (2, 3, 40, 31), (1, 3, 17, 100)):
        pixels = np.random.default_rng(3).standard_normal(shape).astype(np.float32)

        result = infer(running.client, pixels, "large")

        np.testing.assert_allclose(result, whole.run(None, {"image": pixels})[0], rtol=1e-4, atol=1e-4)
    assert infer(running.client, np.ones((1, 3, 1, 5), np.float32), "large").shape == (1, 3, 2, 10)
    metadata = running.client.get_model_metadata("m")
    assert [list(one.shape) for one in (*metadata.inputs, *metadata.outputs)] == [[-1, 3, -1, -1]] * 2
    if engine == "openvino":
        config = running.client.get_model_config("m").config
        assert config.parameters["native_nodes"].string_value == "0"


def test_stages_behind_tiles_run_on_tiles(start: Starter, tmp_path: pathlib.Path) -> None:
    stages = "{tiles: {size: [8, 8], overlap: 2}}, {normalize: {}}, {layout: nchw}"
    client = start(entry(tmp_path, CLASSES, stages)).client
    pixels = np.random.default_rng(4).integers(0, 255, (1, 21, 13, 3), np.uint8)

    np.testing.assert_array_equal(infer(client, pixels, "classes"), pixels.argmax(3))


def test_too_many_pixels_are_the_clients_fault(start: Starter, tmp_path: pathlib.Path) -> None:
    client = start(entry(tmp_path, CLASSES, "{tiles: {size: [8, 8], overlap: 2, max_pixels: 100}}")).client

    with pytest.raises(InferenceServerException, match="121 pixels, but 100 are the most") as caught:
        infer(client, np.zeros((1, 3, 11, 11), np.float32), "classes")

    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("stages", "problem"),
    [
        ("{tiles: {size: [8]}}", "preprocess[0].tiles.size"),
        ("{tiles: {size: [8, 8], overlap: 5}}", "preprocess[0].tiles: overlap (5) should be at most half of size (8)"),
        ("{tiles: {size: [9, 8], overlap: 4, align: 4}}", "tiles: size (9) should be a multiple of align (4)"),
        ("{tiles: {size: [8, 8], overlap: 2, align: 4}}", "tiles: overlap (2) should be a multiple of align (4)"),
        ("{tiles: {size: [8, 8], overlap: 2, batch: 0}}", "preprocess[0].tiles.batch"),
        ("{normalize: {}}, {tiles: {size: [8, 8], overlap: 2}}", "preprocess[1].tiles: should come first"),
        ("{tiles: {size: [8, 8], overlap: 2}}, {center_crop: [4, 4]}", "preprocess[1].center_crop: would cut"),
        ("{input: {shape: [-1, 3]}}, {tiles: {size: [8, 8], overlap: 2}}", "preprocess[1].tiles: takes images"),
        ("{tiles: {size: [8, 8], overlap: 2}}, {layout: nhwc}", "preprocess[1].layout"),
    ],
)
def test_options_that_do_not_fit_are_named_with_their_field(tmp_path: pathlib.Path, stages: str, problem: str) -> None:
    path = tmp_path / "servable.yaml"
    path.write_text(f"models:\n{entry(tmp_path, UPSCALE, stages)}")

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert problem in str(caught.value)
