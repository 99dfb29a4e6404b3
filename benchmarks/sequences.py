"""Measures state on the server: ``python -m benchmarks.sequences [--decoder GPT2.onnx]``.

A recurrent step over gRPC stands beside the same step of a client that carries the state, and 64 sequences that share
executions beside the same one by one. A decoder, as ``benchmarks.modern`` writes it, stands beside the loop of ONNX
Runtime that keeps its cache as its own values, in process and over gRPC.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import trtnode
from benchmarks.serving.servers import BenchmarkModel, our_server
from trtnode.bench.environment import describe_environment
from trtnode.bench.latency.interleaving import Interleaving, ratio_with_interval, time_calls
from trtnode.bench.server_process import UNLIMITED, inference_request
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.engines.process_memory import resident_bytes
from trtnode.protos import ModelInferRequest, ModelInferResponse
from trtnode.serving.service.rpc_table import SERVICE_NAME

PAST_LENGTHS = (1, 100, 400, 800)
SMALL, LARGE = 256, 1024
"""Columns of a recurrent cell: of one whose step takes less time than its request, and of one that reads 25 MB."""
SEQUENCES = 64
CONNECTIONS = 4
ABANDONED = 1000
IDLE_S = 3.0
ONE = np.array([[5]], np.int64)
OURS, LOOP = "ours", "loop"
TOP = [{"tensor": "output", "top_k": {"k": 1}}]


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sequences", description="Measures state on the server.")
    takes = "with input_ids, attention_mask and a past"
    parser.add_argument("--decoder", type=pathlib.Path, metavar="MODEL.onnx", help=takes)
    parser.add_argument("--rounds", type=int, default=12, help="turns of each candidate (default: 12)")
    options = parser.parse_args()
    console = Console()
    console.print(describe_environment(), highlight=False)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for line in measured(options.decoder, folder, options.rounds):
            console.print(line, highlight=False)
    return 0


def measured(decoder: pathlib.Path | None, folder: pathlib.Path, rounds: int) -> Iterator[str]:
    """Yield a line for each figure."""
    path, large = (write_recurrent(folder / f"{columns}.onnx", columns) for columns in (SMALL, LARGE))
    yield f"a step over gRPC, beside a client that carries 2 KB of state: {step_ratio(path, folder, rounds)}"
    for file, columns in ((path, SMALL), (large, LARGE)):
        yield f"{SEQUENCES} sequences of {columns} columns, joined over one by one: {joined_ratio(file, columns):.2f}"
    yield f"{ABANDONED} sequences left: {abandoned_mb(path, folder):+.1f} MB after idle_s"
    if decoder is None:
        return
    for mask, append in (("a mask of its own tokens", ["attention_mask"]), ("the mask of all", [])):
        sizes = ", ".join(map(str, token_bytes(decoder, folder, append)))
        yield f"bytes of a token with {mask}, but for the outputs, from {PAST_LENGTHS} on: {sizes}"
    for past in PAST_LENGTHS:
        for place, served in (("in process", False), ("over gRPC", True)):
            found = token_ratio(decoder, folder, past, rounds, served=served)
            yield f"a token {place}, beside ONNX Runtime's loop, from {past} on: {found}"


def write_recurrent(path: pathlib.Path, columns: int) -> pathlib.Path:
    """Write a recurrent cell over rows, with its state h and c."""
    rng = np.random.default_rng(0)
    shape: list[str | int | None] = ["n", columns]
    gates = [
        helper.make_node("MatMul", ["x", "w"], ["wx"]),
        helper.make_node("MatMul", ["h", "r"], ["rh"]),
        helper.make_node("Add", ["wx", "rh"], ["gates"]),
        helper.make_node("Split", ["gates"], ["i", "f", "g"], axis=1, num_outputs=3),
        helper.make_node("Sigmoid", ["i"], ["i_"]),
        helper.make_node("Sigmoid", ["f"], ["f_"]),
        helper.make_node("Tanh", ["g"], ["g_"]),
        helper.make_node("Mul", ["f_", "c"], ["kept"]),
        helper.make_node("Mul", ["i_", "g_"], ["new"]),
        helper.make_node("Add", ["kept", "new"], ["c_out"]),
        helper.make_node("Tanh", ["c_out"], ["h_out"]),
        helper.make_node("ReduceMean", ["h_out", "one"], ["y"]),
    ]
    value = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
    weights = [
        numpy_helper.from_array(rng.standard_normal((columns, 3 * columns), np.float32) * np.float32(0.05), name)
        for name in "wr"
    ]
    graph = helper.make_graph(
        gates,
        "cell",
        [value(name, shape=shape) for name in ("x", "h", "c")],
        [value("y", shape=["n", 1]), value("h_out", shape=shape), value("c_out", shape=shape)],
        [*weights, numpy_helper.from_array(np.array([1], np.int64), "one")],
    )
    onnx.save(onnx.ModelProto(ir_version=8, graph=graph, opset_import=[helper.make_opsetid("", 18)]), path)
    return path


Infer = Callable[[Mapping[str, np.ndarray], int, bool, bool], ModelInferResponse]
"""Sends inputs, the sequence (0 for none), and flags of its first and last request."""


@contextlib.contextmanager
def serving(path: pathlib.Path, folder: pathlib.Path, **settings: Any) -> Iterator[tuple[Infer, int]]:
    """Serve a model; yield what asks it, and the process."""
    model = BenchmarkModel(file=path, shape=(1,), settings={"engine": "native", "warmup": 0, **settings})
    own = pathlib.Path(tempfile.mkdtemp(dir=folder))
    options = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
    with our_server(model, own, max_message_mb=1024) as endpoint, contextlib.ExitStack() as channels:
        calls = [
            channels.enter_context(grpc.insecure_channel(endpoint.address, options=options)).unary_unary(
                f"/{SERVICE_NAME}/ModelInfer", ModelInferRequest.SerializeToString, ModelInferResponse.FromString
            )
            for _ in range(CONNECTIONS)
        ]

        def infer(feeds: Mapping[str, np.ndarray], sequence: int, first: bool, last: bool) -> ModelInferResponse:
            request = sequence_request(model.name, feeds, sequence, first=first, last=last)
            answer: ModelInferResponse = calls[sequence % CONNECTIONS](request)
            return answer

        yield infer, endpoint.process


def sequence_request(
    model: str, feeds: Mapping[str, np.ndarray], sequence: int, *, first: bool, last: bool
) -> ModelInferRequest:
    """Return a request of a sequence, or of none if it is 0."""
    request = inference_request(model, feeds)
    if sequence:
        request.parameters["sequence_id"].int64_param = sequence
        request.parameters["sequence_start"].bool_param = first
        request.parameters["sequence_end"].bool_param = last
    return request


def step_ratio(path: pathlib.Path, folder: pathlib.Path, rounds: int) -> str:
    """Return the time of a step of a client that carries the state, over that of one that sends a sequence id."""
    x, state = np.ones((1, SMALL), np.float32), np.zeros((1, SMALL), np.float32)
    with serving(path, folder, state="auto") as (ours, _), serving(path, folder) as (other, _):
        ours({"x": x}, 1, True, False)
        carried = {"h": state, "c": state}

        def carry() -> None:
            answer = other({"x": x, **carried}, 0, False, False)
            raw = dict(zip((one.name for one in answer.outputs), answer.raw_output_contents, strict=True))
            for name in carried:
                carried[name] = np.frombuffer(raw[f"{name}_out"], np.float32).reshape(1, SMALL)

        return ratio({LOOP: carry, OURS: lambda: ours({"x": x}, 1, False, False)}, rounds)


def joined_ratio(path: pathlib.Path, columns: int) -> float:
    """Return how many steps a second of sequences side by side share executions, over those one by one."""
    batching = {"max_batch_size": SEQUENCES, "max_queue_delay_us": 2000}
    with (
        serving(path, path.parent, state="auto", batching=batching) as (joined, _),
        serving(path, path.parent, state="auto") as (one, _),
    ):
        turns = [(_steps_a_second(joined, columns), _steps_a_second(one, columns)) for _ in range(3)]
    return float(np.median([ours / other for ours, other in turns]))


def _steps_a_second(infer: Infer, columns: int, steps: int = 100) -> float:
    x = np.ones((1, columns), np.float32)

    def run(sequence: int) -> None:
        for step in range(steps):
            infer({"x": x}, sequence, step == 0, step == steps - 1)

    began = time.perf_counter()
    with ThreadPoolExecutor(SEQUENCES) as threads:
        list(threads.map(run, range(1, SEQUENCES + 1)))
    return SEQUENCES * steps / (time.perf_counter() - began)


def abandoned_mb(path: pathlib.Path, folder: pathlib.Path) -> float:
    """Return how much a server has grown by sequences that were left, once they are idle for too long."""
    x = np.ones((16, SMALL), np.float32)
    with serving(path, folder, state="auto", sequences={"idle_s": IDLE_S}) as (infer, process):
        for round_ in range(2):  # the first round grows what stays: threads, templates of requests
            for sequence in range(1, ABANDONED + 1):
                infer({"x": x}, sequence, True, False)
            time.sleep(2 * IDLE_S)
            if not round_:
                before = resident_bytes(process)
        return (resident_bytes(process) - before) / 2**20


def token_ratio(decoder: pathlib.Path, folder: pathlib.Path, past: int, rounds: int, *, served: bool) -> str:
    """Return ONNX Runtime's time of a token over ours, from so many tokens in the cache on."""
    loop = functools.partial(next, ort_loop(decoder, past))
    if not served:
        sequence = trtnode.load(decoder, state="auto").sequence()
        lengths = itertools.count(past)
        sequence.run(_step(np.zeros((1, past), np.int64), next(lengths)))
        return ratio({LOOP: loop, OURS: lambda: sequence.run(_step(ONE, next(lengths) + 1))}, rounds)
    with serving(decoder, folder, state="auto", postprocess=TOP) as (infer, _):
        lengths = itertools.count(past)
        infer(_step(np.zeros((1, past), np.int64), next(lengths)), 1, True, False)
        return ratio({LOOP: loop, OURS: lambda: infer(_step(ONE, next(lengths) + 1), 1, False, False)}, rounds)


def token_bytes(decoder: pathlib.Path, folder: pathlib.Path, append: Sequence[str]) -> Iterator[int]:
    """Yield the bytes of a token's request and response but for its outputs, from each number of tokens on."""
    with serving(decoder, folder, state="auto", sequences={"append": append}, postprocess=TOP) as (infer, _):
        for past in PAST_LENGTHS:
            feeds = _step(ONE, 1 if append else past + 1)
            infer(_step(np.zeros((1, past), np.int64), past), past, True, False)
            answer = infer(feeds, past, False, True)
            request = sequence_request("m", feeds, past, first=False, last=True)
            yield request.ByteSize() + answer.ByteSize() - sum(map(len, answer.raw_output_contents))


def _step(ids: np.ndarray, length: int) -> dict[str, np.ndarray]:
    return {"input_ids": ids, "attention_mask": np.ones((1, length), np.int64)}


def ort_loop(decoder: pathlib.Path, past: int) -> Iterator[int]:
    """Yield one token after another from ONNX Runtime's own loop, whose cache stays in its values."""
    session = onnxruntime.InferenceSession(decoder, providers=["CPUExecutionProvider"])
    outputs = [one.name for one in session.get_outputs()]
    caches = {one.name: one for one in session.get_inputs() if one.name.startswith("past")}
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    shapes = {name: [size if isinstance(size, int) else 0 for size in one.shape[1:]] for name, one in caches.items()}
    kept = {name: value(np.zeros((1, *shape), np.float32)) for name, shape in shapes.items()}
    ids = np.zeros((1, past), np.int64)
    for length in itertools.count(past):
        feeds = {name: value(array) for name, array in _step(ids, length).items()}
        found = dict(zip(outputs, session.run_with_ort_values(outputs, {**feeds, **kept}), strict=True))
        kept = {name: found[name.replace("past_key_values", "present").replace("past", "present")] for name in caches}
        ids = ONE
        yield int(found[outputs[0]].numpy()[0, -1].argmax())


def ratio(turns: Mapping[str, Callable[[], object]], rounds: int) -> str:
    """Return how many times as fast as the loop we are, with an interval."""
    timed = {name: functools.partial(time_calls, turn) for name, turn in turns.items()}
    interleaving = Interleaving(timed, seconds_per_turn=0.1, settle_s=0.02)  # a cache grows with each call
    interleaving.run(rounds)
    latencies = interleaving.latencies()
    middle, low, high = ratio_with_interval(latencies[LOOP], latencies[OURS])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
