"""Measures sparse engines: ``python -m benchmarks.sparse [--only NETWORK] [--rounds 15]``.

MobileNetV1, its 1 x 1 convolutions alone, and two LSTMs are pruned in blocks of output channels, or value by value.
ONNX Runtime, OpenVINO and engine sparse run them in turns, in one process each. Ratios are over the faster dense one:
of the medians of turns, and of the times that a tenth of the runs stay below, which neighbours change less.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.pruned_networks import pruned_lstms, pruned_mobilenetv1, pruned_pointwise
from trtnode.bench.environment import describe_environment
from trtnode.bench.latency.candidate_process import CandidateProcess, Recipe
from trtnode.bench.latency.interleaving import Interleaving, Latencies, ratio_with_interval
from trtnode.bench.latency.openers import open_compiled, open_onnxruntime, open_openvino
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.onnxruntime.session import with_basic_optimizations
from trtnode.engines.sparse.library import instructions, missing_reason
from trtnode.engines.sparse.rewriting import with_sparse_layers

DENSE, SPARSE = {"ONNX Runtime": open_onnxruntime, "OpenVINO": open_openvino}, "sparse"

TURN_S, SETTLE_S = 0.1, 0.05

WIDTH = 130
"""Columns of the tables where the output is no terminal."""


NETWORKS: dict[str, Callable[[float, int], onnx.ModelProto]] = {
    "MobileNetV1": pruned_mobilenetv1,
    "its 1 x 1 layers": pruned_pointwise,
    "LSTMs of 512": functools.partial(pruned_lstms, 512),
    "LSTMs of 1024": functools.partial(pruned_lstms, 1024),
}
"""Networks by name: a share of zeros and a size of blocks give a model."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pruned network.

    Attributes:
        network: One of ``NETWORKS``.
        block: Successive output channels that are pruned together.
        zeros: Share of the blocks that are zero.
        least: Least gain over the best dense engine; None where none is expected.
    """

    network: str = "MobileNetV1"
    block: int
    zeros: float
    least: float | None


CASES = (
    Case(block=4, zeros=0.95, least=None),
    Case(block=4, zeros=0.9, least=2.0),
    Case(block=4, zeros=0.8, least=None),
    Case(block=4, zeros=0.7, least=None),
    Case(block=4, zeros=0.5, least=1.1),
    Case(block=4, zeros=0.35, least=None),
    Case(block=1, zeros=0.9, least=1.5),
    Case(block=1, zeros=0.7, least=None),
    Case(network="its 1 x 1 layers", block=4, zeros=0.9, least=4.0),
    Case(network="LSTMs of 512", block=4, zeros=0.75, least=2.2),
    Case(network="LSTMs of 1024", block=4, zeros=0.75, least=3.5),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a gain is missed; 2 without the compiled kernels."""
    given = _parser().parse_args(arguments)
    if problem := missing_reason():
        print(problem, file=sys.stderr)
        return 2
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    environment = describe_environment()
    console.print(
        f"{environment['processor']}, {instructions()}, {given.threads} threads, load {environment['load_average']}"
    )
    table = Table(
        *("network", "rows of a block", "zeros", *(f"{name}, ms" for name in (*DENSE, SPARSE))),
        *("gain", "of fastest tenth", "at least", "auto takes", "weights"),
    )
    missed = 0
    for case in (case for case in CASES if given.only in (None, case.network)):
        model = NETWORKS[case.network](case.zeros, case.block)
        latencies = _measure(model, given.rounds, given.threads)
        best = min(DENSE, key=lambda engine: latencies[engine].percentile_ms(50))
        gain, low, high = ratio_with_interval(latencies[best], latencies[SPARSE])
        tenths = {name: one.percentile_ms(10) for name, one in latencies.items()}
        missed += case.least is not None and gain < case.least
        times = (f"{one.percentile_ms(50):.2f}" for one in latencies.values())
        fastest = f"{min(tenths[name] for name in DENSE) / tenths[SPARSE]:.2f}"
        bar = f"{case.least:g}" if case.least else ""
        chosen = _chosen_by_auto(model, given.threads)
        told = (f"{gain:.2f} ({low:.2f} to {high:.2f})", fastest, bar, chosen, f"{_weight_share(model):.3f}")
        table.add_row(case.network, str(case.block), f"{case.zeros:g}", *times, *told)
    console.print(table)
    return 1 if missed else 0


def _chosen_by_auto(model: onnx.ModelProto, threads: int) -> str:
    """Return the engine that a compilation takes by its own measurement; ``native`` is ONNX Runtime."""
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        source = pathlib.Path(name, "source.onnx")
        onnx.save(model, source)
        return compile_model(source, CompileOptions(threads=threads)).engine


def _weight_share(model: onnx.ModelProto) -> float:
    """Return the bytes of packed weights, over those of the same layers' dense weights."""
    rewritten, _ = with_sparse_layers(with_basic_optimizations(model))
    sizes = {tensor.name: numpy_helper.to_array(tensor).nbytes for tensor in rewritten.graph.initializer}
    packed = dense = 0
    for node in rewritten.graph.node:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if "block" in attributes:
            packed += sum(sizes[name] for name in node.input[1:4])
            dense += 4 * attributes["rows"] * attributes["columns"]
    return packed / dense if dense else 1.0


def _measure(model: onnx.ModelProto, rounds: int, threads: int) -> dict[str, Latencies]:
    """Return the latencies of each engine, the dense ones first."""
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name, contextlib.ExitStack() as running:
        source, compiled = pathlib.Path(name, "source.onnx"), pathlib.Path(name, "sparse.onnx")
        onnx.save(model, source)
        compile_model(source, CompileOptions(engine=SPARSE, all_engines=True, threads=threads)).save(compiled)
        recipes = [Recipe(setting=n, engine=n, open=o, model=source, threads=threads) for n, o in DENSE.items()]
        recipes.append(Recipe(setting=SPARSE, engine=SPARSE, open=open_compiled, model=compiled, threads=threads))
        feeds = {value.name: _normal(value) for value in model.graph.input}
        processes = [running.enter_context(CandidateProcess(recipe)) for recipe in recipes]
        turns = {one.recipe.setting: functools.partial(one.take_turn, feeds) for one in processes}
        interleaving = Interleaving(turns, seconds_per_turn=TURN_S, settle_s=SETTLE_S)
        interleaving.run(rounds)
        return interleaving.latencies()


def _normal(value: onnx.ValueInfoProto) -> np.ndarray:
    """Draw values of an input; a dimension without a size is a batch of one."""
    shape = [size.dim_value or 1 for size in value.type.tensor_type.shape.dim]
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sparse", description=__doc__)
    parser.add_argument("--only", choices=NETWORKS, help="one of the networks; default: all")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each engine; default: 15")
    parser.add_argument("--threads", type=int, default=2, help="of each engine; default: 2")
    return parser


if __name__ == "__main__":
    sys.exit(main())
