"""Ask a running server to read ten held-out digits, one of each class.

It works with any KServe V2 server that serves the model as ``digits``, and needs only ``tritonclient``.
Run ``python examples/digits/predict.py``. It exits with 1 if the server is missing or reads a digit wrongly.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

Array = npt.NDArray[np.float32]

MODEL = "digits"
TEST_DATA = Path(__file__).with_name("test.npz")
READY_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.5
SHADES = " .:-=+*#%@"
# gRPC waits longer after each refused connection; the limit finds a starting server at once.
CHANNEL_ARGS = [("grpc.max_reconnect_backoff_ms", 500)]


def is_ready(client: InferenceServerClient) -> bool:
    """Return whether the server answers and has the model loaded."""
    try:
        return bool(
            client.is_server_ready(client_timeout=REQUEST_TIMEOUT_S)
            and client.is_model_ready(MODEL, client_timeout=REQUEST_TIMEOUT_S)
        )
    except InferenceServerException:
        return False


def wait_until_ready(client: InferenceServerClient, timeout_s: float) -> bool:
    """Ask until the model is ready; return False if it is not within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not is_ready(client):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def one_of_each() -> dict[int, Array]:
    """Return the first held-out image of each digit, ``float32[1, 1, 8, 8]``."""
    with np.load(TEST_DATA) as data:
        images, labels = data["image"], data["label"]
    digits, first = np.unique(labels, return_index=True)
    return {int(digit): images[index : index + 1] for digit, index in zip(digits, first, strict=True)}


def predict(client: InferenceServerClient, image: Array) -> tuple[int, float]:
    """Return the digit that the server reads in the image, and the latency in milliseconds."""
    tensor = InferInput("image", list(image.shape), "FP32")
    tensor.set_data_from_numpy(image)
    start = time.perf_counter()
    result = client.infer(MODEL, [tensor], client_timeout=REQUEST_TIMEOUT_S)
    latency_ms = 1000 * (time.perf_counter() - start)
    return int(result.as_numpy("probabilities").argmax()), latency_ms


def draw(image: Array) -> str:
    """Return the image as lines of characters, two per pixel, darker for more ink."""
    levels = (image[0, 0] * (len(SHADES) - 1)).round().astype(int)
    return "\n".join("  " + "".join(2 * SHADES[level] for level in row) for row in levels)


def predict_all(client: InferenceServerClient, *, show: bool) -> bool:
    """Print one line per digit and a summary; return whether all were right."""
    right = 0
    latencies_ms = []
    samples = one_of_each()
    for digit, image in samples.items():
        answer, latency_ms = predict(client, image)
        right += answer == digit
        latencies_ms.append(latency_ms)
        if show:
            print(draw(image))
        mark = "✓" if answer == digit else "✗"
        print(f"digit {digit}  predicted {answer}  {mark}  {latency_ms:7.2f} ms")
    print(f"{right} of {len(samples)} right, median latency {statistics.median(latencies_ms):.2f} ms")
    return right == len(samples)


def main() -> int:
    """Return the exit code: 0 if every digit was read rightly."""
    parser = argparse.ArgumentParser(description="Send ten handwritten digits to a running server.")
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of its gRPC endpoint (default: %(default)s)")
    parser.add_argument("--show", action="store_true", help="draw each digit")
    arguments = parser.parse_args()
    with InferenceServerClient(arguments.url, channel_args=CHANNEL_ARGS) as client:
        if not wait_until_ready(client, READY_TIMEOUT_S):
            print(
                f"No server at {arguments.url} had the model {MODEL!r} ready within {READY_TIMEOUT_S:.0f} s. "
                "Start one, or name another with --url.",
                file=sys.stderr,
            )
            return 1
        try:
            return 0 if predict_all(client, show=arguments.show) else 1
        except InferenceServerException as error:
            print(f"The server at {arguments.url} refused the request: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
