"""Measures the overhead of a call over the libraries' cheapest call: ``python -m benchmarks.overhead``.

Engine: a model of one TrtNode, against a raw OpenVINO request with preset tensors and a copy of its input. Native: a
model without engines, against onnxruntime's ``run``. Both pairs are interleaved, on the same inputs.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from trtnode.bench.environment import describe_environment
from trtnode.bench.latency.interleaving import Interleaving, Latencies, time_calls
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.engines.runtime.executor import Executable

ENGINE_LIMIT_US, NATIVE_LIMIT_US = 15.0, 10.0
SIZES = (16, 1024, 65_536)

TITLE = "Median microseconds of a run; trtnode compile --engine openvino --all-engines"


def main() -> int:
    """Measure, print, and return 1 if a limit is exceeded."""
    what = "Measures what this project adds to the libraries' cheapest call."
    argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=what).parse_args()
    console = Console()
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    table = Table("elements", "pair", "raw", "this project", "added", "limit", title=TITLE)
    within = True
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as folder:
        for size in SIZES:
            for name, (raw, ours) in _pairs(pathlib.Path(folder), size).items():
                limit = ENGINE_LIMIT_US if name == "engine" else NATIVE_LIMIT_US
                added = _added_us(raw, ours)
                within &= added <= limit
                table.add_row(f"{size:,}", name, *(f"{x:.1f}" for x in (_us(raw), _us(ours), added, limit)))
    console.print(table)
    return 0 if within else 1


def _pairs(folder: pathlib.Path, size: int) -> dict[str, tuple[Latencies, Latencies]]:
    source = folder / f"relu_{size}.onnx"
    onnx.save(_model(size), source)
    compiled = folder / f"relu_{size}.compiled.onnx"
    compile_model(source, CompileOptions(engine="openvino", all_engines=True)).save(compiled)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    feeds = {"x": np.random.default_rng(0).standard_normal((1, size)).astype(np.float32)}
    raw = {"engine": _raw_openvino(source, feeds["x"]), "native": lambda: session.run(None, feeds)}
    ours = {"engine": open_model(compiled), "native": open_model(source)}
    return {name: _measure_pair(raw[name], ours[name], feeds) for name in raw}


def _measure_pair(
    raw: Callable[[], object], executable: Executable, feeds: Mapping[str, np.ndarray]
) -> tuple[Latencies, Latencies]:
    ours = functools.partial(executable.run, feeds)
    turns = {"raw": functools.partial(time_calls, raw), "ours": functools.partial(time_calls, ours)}
    interleaving = Interleaving(turns, seconds_per_turn=0.05)
    interleaving.run(40)
    times = interleaving.latencies()
    return times["raw"], times["ours"]


def _raw_openvino(source: pathlib.Path, x: np.ndarray) -> Callable[[], object]:
    """Return a call that copies the input and makes the cheapest call of OpenVINO's Python binding."""
    get_backend("openvino")  # blocks the package that reports usage over the network
    import openvino as ov
    from openvino._pyopenvino import InferRequest

    properties = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY"}
    compiled = ov.Core().compile_model(ov.Core().read_model(str(source)), "CPU", properties)
    request = compiled.create_infer_request()
    bound, output = np.empty_like(x), np.empty_like(x)
    request.set_input_tensor(0, ov.Tensor(bound, shared_memory=True))
    request.set_output_tensor(0, ov.Tensor(output, shared_memory=True))

    def call() -> np.ndarray:
        np.copyto(bound, x)
        InferRequest.infer(request, {}, share_outputs=True, decode_strings=False)
        return output

    return call


def _model(size: int) -> onnx.ModelProto:
    text = (
        f'<ir_version: 10, opset_import: ["": 21]> relu (float[1, {size}] x) => (float[1, {size}] y) {{ y = Relu(x) }}'
    )
    return onnx.parser.parse_model(text)


def _added_us(raw: Latencies, ours: Latencies) -> float:
    """Return the median over rounds of the difference of their medians, in us."""
    return float(np.median(ours.round_medians() - raw.round_medians())) * 1e3


def _us(latencies: Latencies) -> float:
    return latencies.percentile_ms(50) * 1e3


if __name__ == "__main__":
    sys.exit(main())
