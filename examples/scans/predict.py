"""Ask a running server to clean ten held-out scans of handwritten digits.

It works with any KServe V2 server that serves the model as ``scans``, and needs only ``tritonclient``. Run
``python examples/scans/predict.py``, with ``--show`` or ``--picture`` to see the pictures. It exits with 1 if the
server is missing or a picture comes back no cleaner.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

Array = npt.NDArray[np.float32]

MODEL = "scans"
TEST_DATA = Path(__file__).with_name("test.npz")
REQUEST_TIMEOUT_S = 10.0
READY_TIMEOUT_S = 120.0  # a first start builds and measures engines
POLL_INTERVAL_S = 0.5
# gRPC waits longer after each refused connection; the limit finds a starting server at once.
CHANNEL_ARGS = [("grpc.max_reconnect_backoff_ms", 500)]
PICTURED = 3
SHADES = " .:-=+*#%@"


def wait_until_ready(client: InferenceServerClient, timeout_s: float) -> bool:
    """Ask until the model is ready; return False if it is not within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(InferenceServerException):
            if client.is_model_ready(MODEL, client_timeout=REQUEST_TIMEOUT_S):
                return True
        time.sleep(POLL_INTERVAL_S)
    return False


def clean(client: InferenceServerClient, scan: Array) -> tuple[Array, float]:
    """Return what the server makes of a scan ``float32[1, 1, H, W]``, and the latency in milliseconds."""
    tensor = InferInput("scan", list(scan.shape), "FP32")
    tensor.set_data_from_numpy(scan)
    start = time.perf_counter()
    result = client.infer(MODEL, [tensor], client_timeout=REQUEST_TIMEOUT_S)
    latency_ms = 1000 * (time.perf_counter() - start)
    return np.clip(result.as_numpy("clean"), 0, 1), latency_ms


def psnr_db(picture: Array, wanted: Array) -> float:
    """Return the peak signal-to-noise ratio of a picture from 0 to 1, in dB."""
    return float(-10 * np.log10(((picture - wanted) ** 2).mean()))


def draw(picture: Array) -> str:
    """Return a picture as lines of characters, one for 2x4 pixels, darker for more ink."""
    n, height, width = picture[0].shape
    means = picture[0].reshape(n, height // 4, 4, width // 2, 2).mean(axis=(0, 2, 4))
    levels = (means * (len(SHADES) - 1)).round().astype(int)
    return "\n".join("  " + "".join(SHADES[level] for level in row) for row in levels)


def as_png(picture: Array) -> bytes:
    """Return a picture ``float32[H, W]`` from 0 (paper) to 1 (ink) as a PNG file."""
    pixels = np.insert((255 * (1 - picture)).astype(np.uint8), 0, 0, axis=1)  # each row begins with its filter: none

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = picture.shape
    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def clean_all(client: InferenceServerClient, *, show: bool, picture_file: Path | None) -> bool:
    """Print one line per scan and a summary; return whether all came back cleaner."""
    with np.load(TEST_DATA) as data:
        scans, wanted = data["scan"], data["clean"]
    cleaner, latencies_ms, pairs = 0, [], []
    for number, (scan, ink) in enumerate(zip(scans, wanted, strict=True)):
        picture, latency_ms = clean(client, scan[np.newaxis])
        before, after = psnr_db(scan, ink), psnr_db(picture, ink)
        cleaner += after > before
        latencies_ms.append(latency_ms)
        pairs.append(np.concatenate([scan[0], picture[0, 0]]))
        if show:
            print(draw(scan[np.newaxis]), draw(picture), sep="\n\n")
        print(f"scan {number}  {before:4.1f} dB, cleaned {after:4.1f} dB  {latency_ms:7.2f} ms")
    print(f"{cleaner} of {len(scans)} cleaner, median latency {statistics.median(latencies_ms):.2f} ms")
    if picture_file:
        picture_file.write_bytes(as_png(np.concatenate(pairs[:PICTURED], axis=1).repeat(2, axis=0).repeat(2, axis=1)))
    return cleaner == len(scans)


def main() -> int:
    """Return the exit code: 0 if every scan came back cleaner."""
    parser = argparse.ArgumentParser(description="Send ten scans to a running server.")
    parser.add_argument("--url", default="127.0.0.1:8001", help="host:port of its gRPC endpoint (default: %(default)s)")
    parser.add_argument("--show", action="store_true", help="draw each scan, and what becomes of it")
    parser.add_argument("--picture", type=Path, metavar="FILE.png", help="write scans above what becomes of them")
    arguments = parser.parse_args()
    with InferenceServerClient(arguments.url, channel_args=CHANNEL_ARGS) as client:
        if not wait_until_ready(client, READY_TIMEOUT_S):
            print(f"No server at {arguments.url} had {MODEL!r} ready within {READY_TIMEOUT_S:.0f} s.", file=sys.stderr)
            return 1
        try:
            return 0 if clean_all(client, show=arguments.show, picture_file=arguments.picture) else 1
        except InferenceServerException as error:
            print(f"The server at {arguments.url} refused the request: {error}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
