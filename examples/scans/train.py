"""Train a network that cleans scans of handwritten digits, and export it to ONNX.

The digits are those of 8x8 pixels that scikit-learn ships, drawn larger and side by side. Shade, ruled lines, noise and
speckles make a scan of them. One seed fixes the pictures and the initial weights.

``python examples/scans/train.py`` takes about a minute on two cores, and writes ``scans.onnx``, ``calibration.npz`` and
``test.npz`` beside itself.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from network import HEIGHT, WIDTH, Array, Network, export_model
from scipy.ndimage import zoom  # type: ignore[import-untyped]
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

logger = logging.getLogger(__name__)

SEED = 7
ENLARGED = 4
DIGIT = 8 * ENLARGED
HELD_OUT = 300
CALIBRATION_COUNT, TEST_COUNT = 24, 10
STEPS, BATCH_SIZE, CROP = 200, 24, 32
LEARNING_RATE = 3e-3
MIN_GAIN_DB = 7.0
BLAS_THREADS = 2  # their number changes the order of sums, and so the last bits of the weights


def load() -> Array:
    """Return all digits, ``float32[N, 32, 32]``, from 0 (paper) to 1 (ink)."""
    images = load_digits().images / 16
    return np.clip(zoom(images, (1, ENLARGED, ENLARGED), order=1), 0, 1).astype(np.float32)


def write(digits: Array, count: int, rng: np.random.Generator) -> Array:
    """Return clean pictures, ``float32[count, 1, 64, 160]``: five digits in each, higher or lower."""
    pictures = np.zeros((count, 1, HEIGHT, WIDTH), np.float32)
    for picture in pictures[:, 0]:
        for place in range(WIDTH // DIGIT):
            top = rng.integers(0, HEIGHT - DIGIT + 1)
            picture[top : top + DIGIT, place * DIGIT : (place + 1) * DIGIT] = digits[rng.integers(len(digits))]
    return pictures


def scan(pictures: Array, rng: np.random.Generator) -> Array:
    """Return pictures as a bad scanner sees them, in 256 steps from 0 to 1."""
    n, _, height, width = pictures.shape
    x, y = np.linspace(-1, 1, width), np.linspace(-1, 1, height)[:, np.newaxis]
    slope = rng.uniform(-0.25, 0.25, (2, n, 1, 1, 1))
    seen = 0.55 * pictures + 0.25 + slope[0] * x + slope[1] * y
    rows = np.arange(height)[:, np.newaxis]
    seen += 0.25 * ((rows + rng.integers(0, 16, (n, 1, 1, 1))) % 16 == 0)
    seen += rng.normal(0, 0.15, pictures.shape)
    speckled = rng.random(pictures.shape) < 0.03
    seen[speckled] = rng.random(speckled.sum())
    return (np.clip(seen * 255, 0, 255).round() / 255).astype(np.float32)


def crops(pictures: Array, scans: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return a square of each picture and of its scan, at the same random place."""
    tops, lefts = rng.integers(0, HEIGHT - CROP, len(scans)), rng.integers(0, WIDTH - CROP, len(scans))
    cut = [
        (slice(None), slice(top, top + CROP), slice(left, left + CROP)) for top, left in zip(tops, lefts, strict=True)
    ]
    return tuple(np.stack([one[place] for one, place in zip(many, cut, strict=True)]) for many in (pictures, scans))


def train(digits: Array, rng: np.random.Generator) -> Network:
    """Return a network trained on squared errors; the learning rate falls along half a cosine."""
    network = Network(rng)
    parameters = [parameter for layer in network.layers.values() for parameter in (layer.weight, layer.bias)]
    means, squares = ([np.zeros_like(parameter) for parameter in parameters] for _ in range(2))
    for step in range(1, STEPS + 1):
        pictures = write(digits, BATCH_SIZE, rng)
        clean, scans = crops(pictures, scan(pictures, rng), rng)
        error = network.forward(scans) - clean
        network.backward(2 * error / np.float32(error.size))
        gradients = [gradient for layer in network.layers.values() for gradient in layer.gradients]
        # Adam (Kingma and Ba 2015, algorithm 1), with both corrections of the bias in the rate.
        rate = LEARNING_RATE * (1 + math.cos(math.pi * step / STEPS)) / 2 * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for parameter, gradient, mean, square in zip(parameters, gradients, means, squares, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            parameter -= rate * mean / (np.sqrt(square) + 1e-8)
        if step % 20 == 0:
            logger.info("Step %d of %d, error %.4f", step, STEPS, float((error**2).mean()))
    return network


def psnr_db(pictures: Array, clean: Array) -> float:
    """Return the peak signal-to-noise ratio of pictures from 0 to 1, in dB."""
    return float(-10 * np.log10(((pictures - clean) ** 2).mean()))


def run(model: Path, scans: Array) -> Array:
    """Return what the exported file makes of scans in onnxruntime."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.clip(session.run(["clean"], {"scan": scans})[0], 0, 1)


def main() -> int:
    """Train, write the three files and return 0 if the model is good enough to show."""
    parser = argparse.ArgumentParser(description="Train the scans example and export it to ONNX.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the files written")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    digits, rng = load(), np.random.default_rng(SEED)
    start = time.perf_counter()
    with threadpool_limits(BLAS_THREADS):
        network = train(digits[HELD_OUT:], rng)
    logger.info("Trained in %.0f s", time.perf_counter() - start)

    onnx.save_model(export_model(network.layers), out / "scans.onnx")
    np.savez_compressed(out / "calibration.npz", scan=scan(write(digits[HELD_OUT:], CALIBRATION_COUNT, rng), rng))
    clean = write(digits[:HELD_OUT], TEST_COUNT, rng)
    scans = scan(clean, rng)
    np.savez_compressed(out / "test.npz", scan=scans, clean=clean)
    before, after = psnr_db(scans, clean), psnr_db(run(out / "scans.onnx", scans), clean)
    logger.info("Held-out scans have %.1f dB, %.1f dB when cleaned", before, after)
    return 0 if after - before >= MIN_GAIN_DB else 1


if __name__ == "__main__":
    sys.exit(main())
