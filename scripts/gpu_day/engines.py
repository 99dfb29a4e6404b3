"""Engines in this process: each answer is compared with that of ONNX Runtime on the CPU."""

from __future__ import annotations

import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime

from scripts.gpu_day.networks import subject
from trtnode.bench.latency.interleaving import Interleaving, time_calls
from trtnode.bench.latency.subjects import write_at_batch
from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.build_options import TensorRtOptions
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tensorrt.backend import TensorRtBackend
from trtnode.partitioner.cut.options import Allowance, PartitionOptions

ENGINE, ON = "tensorrt", "on"
UNSIGNED = Trust.of((), (ENGINE,))
NODE = "g (float[2, 64] x) => (float[2, 64] y) { y = Tanh(x) }"
HYBRID = "g (float[N, 64] x) => (float[N, 64] y) { a = Relu(x) b = Softsign(a) c = Exp(b) d = Softsign(c) y = Abs(d) }"
ROWS = "g (float[N, 64] x) => (float[N, 64] y) { a = Relu(x) y = Tanh(a) }"
NONZERO = "g (float[64] x) => (float[1, M] y) { a = Relu(x) b = NonZero(a) y = Cast<to=1>(b) }"
MOST_ROWS, THREADS, REQUESTS, LOADS, ROUNDS = 16, 8, 400, 9, 10
TOLERANCE = 0.01
"""Of the largest value: TensorFloat-32 has ten bits behind the point."""


class Tried:
    """A model as TensorRT's engines run it, and its source.

    Attributes:
        executable: The loaded model.
        seconds: Compilation, with its check.
        fallbacks: Reasons for which requests were answered natively.
    """

    def __init__(self, source: pathlib.Path, **options: Any) -> None:
        """Compile and load.

        Raises:
            RuntimeError: No engine came out, or one was refused.
        """
        started = time.perf_counter()
        self.compiled = source.with_suffix(".compiled.onnx")
        compile_model(source, CompileOptions(engine=ENGINE, **options)).save(self.compiled)
        self.seconds = time.perf_counter() - started
        self.executable = open_model(self.compiled, run=RunOptions(trust=UNSIGNED))
        facts = self.executable.facts
        if facts.rejected or not facts.segments:
            raise RuntimeError(str(facts.rejected or facts.report))
        self.fallbacks: list[str] = []
        self.executable.on_fallback = self.fallbacks.append
        self._session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])

    def difference(self, feeds: dict[str, np.ndarray]) -> float:
        """Run, and return the largest difference as a share of the largest value.

        Raises:
            AssertionError: It is too large, or the shape is another one.
        """
        found = 0.0
        for value, result in zip(self._session.run(None, feeds), self.executable.run(feeds).values(), strict=True):
            assert result.shape == value.shape, f"{result.shape} is not {value.shape}"
            found = max(found, float(np.abs(result - value).max() / max(np.abs(value).max(), 1e-9)))
        assert found < TOLERANCE, f"it differs by {found} of the largest value"
        return found

    def call(self, feeds: dict[str, np.ndarray]) -> Callable[[], object]:
        """Return a request."""
        return lambda: self.executable.run(feeds)

    def facts(self, differences: Sequence[float]) -> dict[str, Any]:
        """Describe it."""
        facts = self.executable.facts
        found = {"engines": facts.segments, "native nodes": facts.native_nodes, "fallbacks": len(self.fallbacks)}
        return {**found, "compile s": self.seconds, "requests": len(differences), "difference": max(differences)}


def one_node(folder: pathlib.Path) -> dict[str, Any]:
    """Build, load and run the smallest engine."""
    tried = Tried(written(folder, NODE, "node"))
    return tried.facts([tried.difference({"x": floats(2, 64)})])


def native_nodes_between(folder: pathlib.Path) -> dict[str, Any]:
    """Run three engines and two native nodes from many threads, with shapes that change."""
    native = PartitionOptions(native_ops=("Softsign",))
    tried = Tried(written(folder, HYBRID, "hybrid"), shapes=(rows(MOST_ROWS),), partition=native)
    with ThreadPoolExecutor(THREADS) as threads:
        differences = list(
            threads.map(lambda n: tried.difference({"x": floats(1 + n % MOST_ROWS, 64)}), range(REQUESTS))
        )
    return {"threads": THREADS, **tried.facts(differences)}


def two_profiles(folder: pathlib.Path) -> dict[str, Any]:
    """Run an engine in both of its profiles, and outside of them."""
    tried = Tried(written(folder, ROWS, "rows"), shapes=(rows(8), rows(64)))
    return tried.facts([tried.difference({"x": floats(n, 64)}) for n in (1, 8, 9, 64, 65)])


def unknown_size(folder: pathlib.Path) -> dict[str, Any]:
    """Run an engine whose result has a size that only the run tells."""
    tried = Tried(written(folder, NONZERO, "nonzero"), partition=PartitionOptions(allow=(Allowance.DATA_DEPENDENT,)))
    inputs = [np.maximum(floats(64) - share, 0) for share in (-9, 0, 1)]
    return tried.facts([tried.difference({"x": x}) for x in inputs])


def cuda_graphs(folder: pathlib.Path) -> dict[str, Any]:
    """Take times with and without CUDA graphs, in turns."""
    source = digits(folder, "graphs")
    feeds = {"image": np.asarray(subject(folder, "digits").samples[0]["image"])}
    tried = {on: Tried(source, tensorrt=TensorRtOptions(cuda_graphs=on == ON)) for on in (ON, "off")}
    turns = Interleaving({on: functools.partial(time_calls, one.call(feeds)) for on, one in tried.items()})
    turns.run(ROUNDS)
    p50 = {f"p50 ms with graphs {on}": times.percentile_ms(50) for on, times in turns.latencies().items()}
    differences = [one.difference(feeds) for one in tried.values()]
    return {**p50, **tried[ON].facts(differences)}


def sign(folder: pathlib.Path) -> dict[str, Any]:
    """Sign a compiled file, and see the unsigned one refused."""
    compiled = Tried(digits(folder, "trust")).compiled
    public = generate_key(folder / f"key-{time.monotonic_ns()}")
    refused = open_model(compiled, run=RunOptions(trust=Trust.of([public], None))).facts.rejected
    assert refused, "the unsigned engine was taken"
    signed = sign_model(compiled, folder / "signed.onnx", public.with_suffix(""))
    public.replace(folder / "signed.pub")
    return {"engines signed": signed, "unsigned": str(refused[0])}


def load_signed(folder: pathlib.Path) -> dict[str, Any]:
    """Load the file that ``sign`` has left, in this other process."""
    started = time.perf_counter()
    executable = open_model(folder / "signed.onnx", run=RunOptions(trust=Trust.of([folder / "signed.pub"], None)))
    seconds = time.perf_counter() - started
    assert not executable.facts.rejected, str(executable.facts.rejected)
    executable.run({"image": subject(folder, "digits").samples[0]["image"]})
    return {"engines": executable.facts.segments, "load s": seconds}


def memory(folder: pathlib.Path) -> dict[str, Any]:
    """Load, run and close a model several times; KiB in use after each."""
    tried = Tried(written(folder, HYBRID, "memory"), shapes=(rows(MOST_ROWS),))
    used = []
    for _ in range(LOADS):
        executable = open_model(tried.compiled, run=RunOptions(trust=UNSIGNED))
        executable.run({"x": floats(MOST_ROWS, 64)})
        executable.close()
        used.append(used_kib())
    return {"KiB in use after each load": used}


def used_kib() -> int:
    """Return the memory of the GPU that is in use, by all processes."""
    backend = get_backend(ENGINE)
    assert isinstance(backend, TensorRtBackend)
    with (device := backend.streams().device):
        free, total = device.driver.mem_get_info()
    return int(total - free) >> 10


def written(folder: pathlib.Path, graph: str, name: str) -> pathlib.Path:
    """Write a graph in ONNX's text form."""
    path = folder / f"{name}.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {graph}'), path)
    return path


def digits(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Write the example for one image."""
    path = folder / f"{name}.onnx"
    write_at_batch(subject(folder, "digits"), path)
    return path


def rows(most: int) -> Profile:
    """Return the profile of up to so many rows."""
    return {"x": ShapeRange(min=(1, 64), opt=(most, 64), max=(most, 64))}


def floats(*shape: int) -> np.ndarray:
    """Draw numbers."""
    return np.random.default_rng(shape[0]).standard_normal(shape).astype(np.float32)
