"""Encoded images to arrays, and what is refused."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.models.image_decoder import ImageDecoder

LABEL = "input 'image' of model 'm'"


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(width: int = 6, height: int = 4) -> Image.Image:
    pixels = np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def decode(*files: bytes, **settings: Any) -> np.ndarray:
    return ImageDecoder(**settings).decode(LABEL, files)


def refusal(*files: bytes, **settings: Any) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        decode(*files, **settings)
    assert str(caught.value).startswith(LABEL)
    return str(caught.value).removeprefix(f"{LABEL}: ")


def test_png_is_decoded_exactly() -> None:
    decoded = decode(encoded(picture()))

    assert decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded, np.asarray(picture())[np.newaxis])


def test_jpeg_is_decoded_as_pillow_does_it() -> None:
    file = encoded(picture(), "JPEG")

    np.testing.assert_array_equal(decode(file)[0], np.asarray(Image.open(io.BytesIO(file))))


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA"])
def test_grey_palette_and_transparent_images_become_rgb(mode: str) -> None:
    image = picture().convert(mode)

    np.testing.assert_array_equal(decode(encoded(image))[0], np.asarray(image.convert("RGB")))


def test_a_palette_with_transparent_colours_becomes_rgb() -> None:
    image = picture().convert("P")

    decoded = decode(encoded(image, transparency=bytes(range(256))))

    np.testing.assert_array_equal(decoded[0], np.asarray(image.convert("RGB")))


def test_of_sixteen_bits_the_upper_eight_stay() -> None:
    pixels = np.array([[0, 255, 256, 65535]], np.uint16)

    decoded = decode(encoded(Image.fromarray(pixels)), channels=1)

    assert decoded.tolist() == [[[[0], [0], [1], [255]]]]


def test_cmyk_becomes_rgb() -> None:
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))

    decoded = decode(encoded(image, "JPEG", quality=95))

    np.testing.assert_allclose(decoded[0, 4, 4], [255, 0, 0], atol=3)


def test_images_may_be_grey() -> None:
    decoded = decode(encoded(picture()), channels=1)

    np.testing.assert_array_equal(decoded[0, :, :, 0], np.asarray(picture().convert("L")))


def test_images_are_turned_as_the_camera_was_held() -> None:
    exif = Image.Exif()
    exif[274] = 6  # orientation: turned by 90 degrees
    file = encoded(picture(), exif=exif)

    np.testing.assert_array_equal(decode(file)[0], np.rot90(np.asarray(picture()), -1))


@pytest.mark.parametrize(
    ("fit", "expected"), [("stretch", [[255, 0]]), ("crop", [[255, 0]]), ("pad", [[0, 255, 0, 0]])]
)
def test_images_of_other_proportions_fit_as_configured(fit: str, expected: list[list[int]]) -> None:
    image = Image.fromarray(np.array([[255, 0], [255, 0]], np.uint8))  # left half white

    size = (1, 2) if fit != "pad" else (2, 4)
    decoded = decode(encoded(image), size=size, fit=fit, channels=1)

    assert decoded[0, :1, :, 0].tolist() == expected


def test_images_of_several_sizes_become_one_batch() -> None:
    images = [picture(30, 20), picture(7, 50)]

    decoded = decode(*map(encoded, images), size=(8, 9))

    expected = [np.asarray(image.resize((9, 8), Image.Resampling.BILINEAR)) for image in images]
    np.testing.assert_array_equal(decoded, np.stack(expected))


def test_without_a_size_images_must_be_equal() -> None:
    assert refusal(encoded(picture(6, 4)), encoded(picture(5, 4))) == (
        "image 1 has 5 x 4 pixels, the first one 6 x 4; send images of one size, or let decode have a size"
    )


@pytest.mark.parametrize("content", [b"", b"hello", b"GIF89a" + bytes(40), encoded(picture(), "BMP")])
def test_other_files_are_refused(content: bytes) -> None:
    assert refusal(content) == "image 0 is no JPEG or PNG file, or not a whole one; send the file's bytes"


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_every_truncated_file_is_refused(kind: str) -> None:
    file = encoded(picture(40, 40), kind)

    for length in range(8, len(file) - 12, len(file) // 20):
        assert "image 1 " in refusal(encoded(picture(40, 40)), file[:length])


def test_flipped_bytes_are_refused_or_decoded() -> None:
    rng = np.random.default_rng(11)
    for kind in ("PNG", "JPEG"):
        for _ in range(100):
            file = bytearray(encoded(picture(16, 16), kind))
            for place in rng.integers(0, len(file), 3):
                file[place] ^= int(rng.integers(1, 256))
            try:
                decoded = decode(bytes(file), size=(4, 4))
            except InvalidRequestError:
                continue
            assert decoded.shape == (1, 4, 4, 3)


def test_a_huge_image_is_refused_before_it_is_decoded() -> None:
    assert refusal(claiming(60_000, 50_000)) == (
        "the images of the request have 3000000000 pixels; together they may have 64000000 (max_pixels)"
    )


def test_the_images_of_a_request_share_one_limit() -> None:
    file = encoded(picture(10, 10))

    assert decode(file, file, max_pixels=200).shape == (2, 10, 10, 3)
    assert "have 300 pixels; together they may have 200" in refusal(file, file, file, max_pixels=200)


def test_no_image_is_no_batch() -> None:
    assert refusal() == f"{LABEL} has no image; send at least one"


def claiming(width: int, height: int) -> bytes:
    """A small PNG file whose head promises an image of this size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(99))), (b"IEND", b""))
    body = (struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in chunks)  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)
