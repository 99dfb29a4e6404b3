"""Compares merged branches with answers in float64: ``python -m benchmarks.optimize.exactness``.

Answers of a deep network in float32 differ by rounding, whatever its form. So onnx.reference computes both forms in
float64 too: their difference there is what the rewrite itself changes. Each figure is the largest difference from the
answer of the file as it is in float64, over the largest element of that answer.

Statistics of the network's own activations bring each layer of random weights back to one scale, and rounding grows
from layer to layer. With statistics that are drawn like the weights, it doesn't.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from rich.console import Console
from rich.table import Table

from trtnode.bench.latency.openers import open_onnxruntime, open_openvino
from trtnode.bench.networks.catalogue import TRAINING_FORMS, network_file, sample_inputs
from trtnode.bench.networks.normalization import NORMALIZATION
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.inputs.samples import Feeds
from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.partitioner.passes.rewrites.apply import Wishes, rewrite_model

MIDDLES = (1.0, 0.0, 0.0, 1.0)
"""Of scales, biases, means and variances that are drawn."""

LIBRARIES = {"ONNX Runtime": open_onnxruntime, "OpenVINO": open_openvino}


def main() -> int:
    """Compute and print."""
    headings = ("network", "statistics", "form", "in float64", *LIBRARIES)
    table = Table(*headings, title="difference from the file as it is in float64")
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        for network in TRAINING_FORMS:
            feeds = sample_inputs(network, 1, 0)
            own = network_file(network, pathlib.Path(name))
            for statistics, source in (("its own", own), ("drawn", _with_drawn_statistics(own))):
                expected = _in_float64(source, feeds)
                for form, file in (("several branches", source), ("merged", _merged(source))):
                    answers = (_in_float64(file, feeds), *(_in_float32(library, file, feeds) for library in LIBRARIES))
                    differences = (f"{_difference(expected, answer):.1e}" for answer in answers)
                    table.add_row(network, statistics, form, *differences)
    Console().print(table)
    return 0


def _with_drawn_statistics(source: pathlib.Path) -> pathlib.Path:
    """Return a copy of a network whose normalizations have random parameters, and so no two the same."""
    model, rng = ir.load(source), np.random.default_rng(0)
    for op in model.graph:
        for value, middle in zip(op.inputs[1:], MIDDLES, strict=True) if op.op_type == NORMALIZATION else ():
            assert value is not None
            assert value.shape is not None
            drawn = middle + rng.uniform(-0.5, 0.5, value.shape.numpy())
            value.const_value = ir.tensor(drawn.astype(np.float32), name=value.name)
    copy = source.with_name(f"drawn-{source.name}")
    ir.save(model, copy)
    return copy


def _merged(source: pathlib.Path) -> pathlib.Path:
    graph = clean_up(ir.load(source))
    rewrite_model(graph.model, Wishes(engine=NATIVE))
    merged = source.with_name(f"merged-{source.name}")
    ir.save(graph.model, merged)
    return merged


def _in_float64(file: pathlib.Path, feeds: Feeds) -> np.ndarray:
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    wide = {name: array.astype(np.float64) for name, array in feeds.items()}
    answers: Any = ReferenceEvaluator(model).run(None, wide)
    return np.asarray(answers[0])


def _in_float32(library: str, file: pathlib.Path, feeds: Feeds) -> np.ndarray:
    return np.asarray(next(iter(LIBRARIES[library](file, None)(feeds))))


def _difference(expected: np.ndarray, answer: np.ndarray) -> float:
    return float(np.abs(answer - expected).max() / np.abs(expected).max())


if __name__ == "__main__":
    sys.exit(main())
