"""Networks in several precisions, beside ONNX Runtime on the CPU and, where it is, on the GPU."""

from __future__ import annotations

import pathlib
from typing import Any

import onnx_ir as ir

from trtnode.bench.latency.measurement import Measurement
from trtnode.bench.latency.openers import RunModel
from trtnode.bench.latency.plan import Plan
from trtnode.bench.latency.recipes import PEERS
from trtnode.bench.latency.subjects import LatencySubject, model_subjects, network_subjects
from trtnode.bench.latency_report.results import LatencyResult, LatencyRow
from trtnode.bench.networks.bert import bert
from trtnode.engines.artifact.files import write_model
from trtnode.engines.onnxruntime.cuda_session import has_cuda
from trtnode.engines.onnxruntime.library import onnxruntime

DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "digits"
ON_GPU = "onnxruntime-gpu"
ROUNDS = 5
BETWEEN = (("LayerNormalization_0_out", "Unsqueeze_0_out"), ("LayerNormalization_8_out",))
"""Inputs and outputs of BERT's first four layers."""


def open_on_gpu(model: pathlib.Path, _: int | None) -> RunModel:
    """Load in ONNX Runtime alone, with its CUDA provider."""
    session = onnxruntime.InferenceSession(str(model), providers=["CUDAExecutionProvider"])
    return lambda feeds: list(session.run(None, feeds))


def measure(folder: pathlib.Path, name: str, precision: str) -> dict[str, Any]:
    """Compile a network, compare it with ONNX Runtime, and take times in turns."""
    PEERS[ON_GPU] = open_on_gpu  # type: ignore[index]
    peers = (ON_GPU,) if has_cuda() else ()
    plan = Plan(precisions=(precision,), peers=peers, engine="tensorrt", via=("process",), threads=None, rounds=ROUNDS)
    result = LatencyResult(environment={})
    Measurement(subject(folder, name), plan, result, lambda _: None).run()
    return {row.setting: _facts(row) for row in result.rows} | {out.setting: out.reason for out in result.left_out}


def subject(folder: pathlib.Path, name: str) -> LatencySubject:
    """Return a network with inputs, written if it isn't there yet."""
    if name == "digits":
        (found,) = model_subjects([DIGITS / "digits.onnx"], [1], DIGITS / "test.npz")
    elif name == "small-bert":
        (found,) = model_subjects([small_bert(folder)], [1], None)
    else:
        (found,) = network_subjects([name], [1], folder)
    return found


def small_bert(folder: pathlib.Path) -> pathlib.Path:
    """Write the first four layers of BERT-base: they take floats, the embedded words and the penalty of the mask."""
    path = folder / "small-bert.onnx"
    graph = ir.convenience.extract(bert().graph, *BETWEEN)
    write_model(ir.to_proto(ir.Model(graph, ir_version=10)), path)
    return path


def _facts(row: LatencyRow) -> dict[str, Any]:
    facts = {"p50_ms": row.p50_ms, "engine": row.engine, "precision": row.precision, "cosine": row.cosine}
    built = {"compile_s": row.compile_s, "load_s": row.load_s, "engine_bytes": row.engine_bytes, "about": row.about}
    return {**facts, "max_abs": row.max_abs, "times_native": row.ratio, **(built if row.compile_s else {})}
