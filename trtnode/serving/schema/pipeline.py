"""Stages before and after a model in servable.yaml: one key a stage names its operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import pydantic
from pydantic import Discriminator, Field, Tag

from trtnode.partitioner.options import LARGEST_SIZE
from trtnode.serving.schema.fields import ConfigPath, Count, Finite, ListOf, Rows, Section
from trtnode.serving.schema.text import Activation, DenseConfig, NoSettings, PoolConfig, TokenizeConfig

Pixels = Annotated[int, Field(ge=1, le=1 << 30)]
Size = Annotated[tuple[Rows, Rows], Field(strict=False)]
"""Height and width, in pixels."""

Numbers = Annotated[tuple[Finite, ...], Field(strict=False, min_length=1)]
Type = Literal["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64"]

SELECTOR = "tensor"
"""The key beside the one that says what a stage does."""


class DecodeConfig(Section):
    """Requests bring JPEG or PNG files (BYTES), decoded to uint8 in RGB as the photographer held the camera."""

    size: Size | None = None
    """Resize each image to this height and width (bilinear); null where all images of a request have one size."""
    fit: Literal["stretch", "crop", "pad"] = "stretch"
    """The way in which images of other proportions get this size: stretched, cut at the sides, or with black bars."""
    channels: Literal[1, 3] = 3
    """1 makes them grey."""
    max_pixels: Pixels = 64_000_000
    """Most pixels of all images of a request together, before they are resized; more are refused, not decoded."""


class InputConfig(Section):
    """Requests bring arrays."""

    type: Type = "uint8"
    """Element type."""
    shape: ListOf[Annotated[int, Field(ge=-1, le=LARGEST_SIZE)]] = (-1, -1, -1, 3)
    """A size a dimension, the first is the batch; -1 for any."""
    layout: Literal["nhwc", "nchw"] = "nhwc"
    """The place of the channels of images: last, or before height and width."""


class TilesConfig(Section):
    """Images of any size go through the model in tiles of one size, which are joined again."""

    size: Size
    """Height and width of a tile: what the model gets."""
    overlap: int = Field(default=16, ge=0, le=65_536)
    """Pixels that neighbours share at least; 4 times as many as the pixels around one that the model looks at."""
    batch: Rows = 4
    """Tiles of one execution; images with fewer left are filled up with empty tiles."""
    align: Rows = 1
    """Tiles start at multiples of it; that of a model that shrinks images on the way is its total shrinkage."""
    layout: Literal["nchw", "nhwc"] = "nchw"
    """The place of the channels in images that the model gives, and takes if tiles is the only stage."""
    max_pixels: Pixels = 64_000_000
    """Most pixels of all images of a request together; more are refused."""

    @pydantic.model_validator(mode="after")
    def _check_overlap(self) -> Self:
        """Sizes fit each other."""
        if 2 * self.overlap > min(self.size):
            raise ValueError(f"overlap ({self.overlap}) should be at most half of size ({min(self.size)})")
        for key, pixels in (("size", self.size[0]), ("size", self.size[1]), ("overlap", self.overlap)):
            if pixels % self.align:
                raise ValueError(f"{key} ({pixels}) should be a multiple of align ({self.align})")
        return self


class NormalizeConfig(Section):
    """(x * scale - mean) / std."""

    scale: Finite = 1 / 255
    """The factor that elements are multiplied with first."""
    mean: Numbers = (0.0,)
    """One number, or one a channel."""
    std: Annotated[tuple[Annotated[Finite, Field(gt=0)], ...], Field(strict=False, min_length=1)] = (1.0,)
    """One number, or one a channel."""


class TopKConfig(Section):
    """The best classes, best first."""

    k: Count = 1
    """The number of them."""
    labels: ConfigPath | None = None
    """A text file (UTF-8) with the name of a class in each line; null gives their numbers."""


class _StageConfig(Section):
    tensor: str | None = None
    """The input or output of the model that it is for; can be left out where there is only one."""

    @property
    def kind(self) -> str:
        """The key that says what the stage does."""
        return next(iter(self.model_fields_set - {SELECTOR}))

    @pydantic.model_validator(mode="after")
    def _check_kind(self) -> Self:
        """Exactly one key says what the stage does."""
        given = self.model_fields_set - {SELECTOR}
        if len(given) != 1 or getattr(self, next(iter(given))) is None:
            known = ", ".join(name for name in type(self).model_fields if name != SELECTOR)
            raise ValueError(f"should have one key with a value that says what it does ({known})")
        return self


class PreprocessConfig(_StageConfig):
    """A building block in front of the model."""

    tokenize: TokenizeConfig | None = None
    """Make token ids of texts; the first stage."""
    decode: DecodeConfig | None = None
    """Decode JPEG and PNG files; the first stage."""
    input: InputConfig | None = None
    """The input that requests bring instead, if it isn't uint8[batch, height, width, 3]; the first stage."""
    tiles: TilesConfig | None = None
    """Run the other stages and the model on tiles of the image; the first stage, or right behind decode or input."""
    resize: Size | None = None
    """Resize to height and width: bilinear, float32 afterwards."""
    center_crop: Size | None = None
    """Keep the middle."""
    color_order: Literal["rgb", "bgr"] | None = None
    """Swap red and blue, to get this order."""
    layout: Literal["nchw", "nhwc"] | None = None
    """Change the order of axes to this one."""
    normalize: NormalizeConfig | None = None
    """Scale, and subtract and divide by numbers of each channel."""
    cast: Type | None = None
    """Change the element type."""


class PostprocessConfig(_StageConfig):
    """A building block behind the model."""

    keep: Annotated[ListOf[str], Field(min_length=1)] | None = None
    """Leave out all outputs but the first of these that the model has."""
    pool: PoolConfig | None = None
    """Turn vectors of tokens into one of the text."""
    dense: DenseConfig | None = None
    """Multiply vectors with the weights of a file."""
    activation: Activation | None = None
    """A function of each element."""
    l2_normalize: NoSettings | None = None
    """Divide vectors by their length."""
    softmax: NoSettings | None = None
    """Turn scores along the last axis into `probabilities`."""
    top_k: TopKConfig | None = None
    """The best classes as `scores` and `labels`."""
    cast: Type | None = None
    """Change the element type."""


def _kind_of_stage(value: object) -> str:
    return "block" if isinstance(value, Mapping | _StageConfig) else "file"


_File = Annotated[ConfigPath, Tag("file")]

Preprocess = ListOf[Annotated[_File | Annotated[PreprocessConfig, Tag("block")], Discriminator(_kind_of_stage)]]
"""ONNX files and building blocks, in order."""

Postprocess = ListOf[Annotated[_File | Annotated[PostprocessConfig, Tag("block")], Discriminator(_kind_of_stage)]]
"""ONNX files and building blocks, in order."""
