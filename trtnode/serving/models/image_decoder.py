"""Encoded images of requests to arrays. Pillow decodes; it is an optional part of the installation.

Decoding is the only pipeline step outside the model. It runs in the request's own thread before the queue, so a damaged
image fails its own request and not a batch. The limit counts the pixels of a whole request, which bounds memory and
time: 64 MB of PNG can hold gigabytes of pixels. Only the JPEG and PNG decoders are ever called.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Literal

import numpy as np

from trtnode.serving.errors import InvalidRequestError

try:
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # ``max_pixels`` counts here, before anything is decoded
    MISSING = ""
except ImportError:
    MISSING = "Pillow is not installed here; run: pip install 'trtnode[images]'"
"""The reason for which images can't be decoded; empty where they can."""

FORMATS = ("JPEG", "PNG")
"""Others are refused: each decoder is one more way in for files made to do harm."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's name of images with so many channels."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageDecoder:
    """Decodes the images of a request.

    Attributes:
        size: Height and width that images get; None leaves them as they are.
        fit: How images of other proportions get this size: stretched, cut at the sides, or with black bars.
        channels: 3 for RGB, 1 for grey.
        max_pixels: Most pixels of all images of a request together.
    """

    size: tuple[int, int] | None = None
    fit: Literal["stretch", "crop", "pad"] = "stretch"
    channels: Literal[1, 3] = 3
    max_pixels: int = 64_000_000

    def decode(self, label: str, files: Sequence[bytes]) -> np.ndarray:
        """Decode JPEG and PNG files.

        An image is turned as its EXIF orientation says. Grey, CMYK and palette images become RGB, transparency is
        left out, and of 16 bits the upper 8 stay.

        Args:
            label: What messages call the input.
            files: Content of each file.

        Returns:
            uint8[number of files, height, width, channels].

        Raises:
            InvalidRequestError: There is no image, or one is of another format, damaged, too large, or of another size
                than the first though ``size`` is None.
        """
        if not len(files):
            raise InvalidRequestError(f"{label} has no image; send at least one")
        opened = [_open(f"{label}: image {index}", content) for index, content in enumerate(files)]
        self._check_pixels(label, opened)
        decoded = [self._pixels(f"{label}: image {index}", image) for index, image in enumerate(opened)]
        for index, pixels in enumerate(decoded):
            if pixels.shape != decoded[0].shape:
                sizes = f"has {_size(pixels)} pixels, the first one {_size(decoded[0])}"
                raise InvalidRequestError(
                    f"{label}: image {index} {sizes}; send images of one size, or let decode have a size"
                )
        return np.stack(decoded)

    def _check_pixels(self, label: str, opened: Sequence[Image.Image]) -> None:
        pixels = sum(image.width * image.height for image in opened)
        if pixels > self.max_pixels:
            raise InvalidRequestError(
                f"{label}: the images of the request have {pixels} pixels; together they may have {self.max_pixels} "
                "(max_pixels)"
            )

    def _pixels(self, place: str, image: Image.Image) -> np.ndarray:
        try:
            ImageOps.exif_transpose(image, in_place=True)
            pixels = np.asarray(self._resized(_plain(image).convert(MODES[self.channels])))
        except Exception as error:  # Pillow raises whatever damaged content makes it raise
            raise InvalidRequestError(f"{place} can't be decoded ({error}); check that the file is whole") from None
        finally:
            image.close()
        return pixels.reshape(*pixels.shape[:2], self.channels)

    def _resized(self, image: Image.Image) -> Image.Image:
        if self.size is None:
            return image
        size, bilinear = self.size[::-1], Image.Resampling.BILINEAR
        match self.fit:
            case "stretch":
                return image.resize(size, bilinear)
            case "crop":
                return ImageOps.fit(image, size, bilinear)
            case "pad":
                return ImageOps.pad(image, size, bilinear)


def _open(place: str, content: bytes) -> Image.Image:
    """Read the head of a file."""
    try:
        return Image.open(io.BytesIO(content), formats=FORMATS)
    except Exception:  # as above
        raise InvalidRequestError(
            f"{place} is no JPEG or PNG file, or not a whole one; send the file's bytes"
        ) from None


def _plain(image: Image.Image) -> Image.Image:
    """An image of 8 bits, that forgets which of its colours are transparent."""
    image.info.pop("transparency", None)
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def _size(pixels: np.ndarray) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"
