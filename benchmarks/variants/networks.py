"""Three networks of one interface that differ in depth, as files."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx_ir as ir

from trtnode.bench.networks.builder import NetworkBuilder
from trtnode.engines.artifact.files import write_model

QUALITIES = {"deep": 0.78, "middle": 0.74, "shallow": 0.66}
"""Stand-ins for accuracies."""

BLOCKS = {"deep": 12, "middle": 4, "shallow": 1}

SIZE = (3, 64, 64)


def write_variants(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write the networks, which classify images of ``SIZE``; return their files by name."""
    files = {name: folder / f"{name}.onnx" for name in BLOCKS}
    for name, path in files.items():
        write_model(ir.to_proto(_network(name, BLOCKS[name])), path)
    return files


def sample_image() -> np.ndarray:
    """Return an image: float32[1, 3, 64, 64]."""
    return np.random.default_rng(0).standard_normal((1, *SIZE)).astype(np.float32)


def _network(name: str, blocks: int) -> ir.Model:
    net = NetworkBuilder(name)
    x = net.op("Relu", net.conv(net.input("image", *SIZE), 64, 3))
    for _ in range(blocks):
        x = net.op("Add", x, net.op("Relu", net.conv(x, 64, 3)))
    return net.finish(logits=net.linear(net.global_pool(x), 10))
