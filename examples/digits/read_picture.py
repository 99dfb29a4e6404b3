"""Ask a running server what digit a picture shows.

The server decodes the picture: start it with ``trtnode serve --config configs/images.yaml``.
Without a file, this program enlarges a held-out digit of the data set eight times and sends it as PNG.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

MODEL = "digits"
TEST_DATA = Path(__file__).with_name("test.npz")
ENLARGEMENT = 8


def draw(number: int) -> bytes:
    """Return one of the held-out digits as a PNG file, white on black."""
    with np.load(TEST_DATA) as data:
        pixels = (255 * data["image"][number, 0]).round().astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.repeat(ENLARGEMENT, 0).repeat(ENLARGEMENT, 1)).save(file, "PNG")
    return file.getvalue()


def read(client: InferenceServerClient, picture: bytes) -> list[tuple[str, float]]:
    """Return the most likely digits with their probabilities, the best first."""
    image = InferInput("image", [1], "BYTES")
    image.set_data_from_numpy(np.array([picture], object))
    result = client.infer(MODEL, [image])
    labels = [label.decode() for label in result.as_numpy("labels")[0]]
    return list(zip(labels, result.as_numpy("scores")[0].tolist(), strict=True))


def main() -> int:
    """Return the exit code: 0 if the server answered."""
    parser = argparse.ArgumentParser(description="Send a picture of a handwritten digit to a running server.")
    parser.add_argument("picture", nargs="?", type=Path, help="a JPEG or PNG file, white on black")
    parser.add_argument("--number", type=int, default=0, help="which held-out digit to draw (default: %(default)s)")
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of its gRPC endpoint (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        picture = arguments.picture.read_bytes() if arguments.picture else draw(arguments.number)
        with InferenceServerClient(arguments.url) as client:
            for label, score in read(client, picture):
                print(f"{label:6} {score:6.1%}")
    except (OSError, IndexError, InferenceServerException) as error:
        print(f"No answer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
