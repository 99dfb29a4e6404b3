"""Decoders with a past and models that are quantized already: speed beside ONNX Runtime, and equal tokens."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import openvino

from benchmarks.modern.networks import write_network
from benchmarks.modern.processes import memory_mb
from trtnode.bench.latency.candidate_process import CandidateProcess, Recipe
from trtnode.bench.latency.interleaving import Interleaving, ratio_with_interval
from trtnode.bench.latency.openers import RunModel, open_compiled
from trtnode.bench.server_process import ServedFile, inference_call, running_server
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.onnxruntime.library import onnxruntime

COMPILED = "compiled"
TOKENS = 8
PAST_LENGTHS = (1, 100, 400, 800)
GREEDY_TOKENS = 200
LIMIT_S = 600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """Figures of one model, compiled with all defaults, beside ONNX Runtime.

    Attributes:
        name: Of the model.
        engine_nodes: Share of the nodes that an engine takes.
        segments: Number of engines with ``--all-engines``.
        chosen: What the default keeps: the engine's name, or native.
        ratios: ONNX Runtime's time over the compiled model's, by the past's length; above 1 is faster.
        engine_ratios: The same with ``--all-engines``.
        memory_over_file: Memory that a process with all engines takes for the model, over the model's files.
    """

    name: str
    engine_nodes: float
    segments: int
    chosen: str
    ratios: dict[int, float]
    engine_ratios: dict[int, float]
    memory_over_file: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecodingRow:
    """Figures of a loop of tokens, with all engines.

    Attributes:
        name: Of the model.
        first_s: First request with an empty past, behind one with a past.
        later_s: Median of such requests after it.
        growth_mb: Memory that they add.
        equal_tokens: Tokens of greedy decoding that equal ONNX Runtime's, of `GREEDY_TOKENS`.
        equal_served: The same over gRPC.
    """

    name: str
    first_s: float
    later_s: float
    growth_mb: float
    equal_tokens: int
    equal_served: int


def open_with_ortvalues(model: pathlib.Path, threads: int | None) -> RunModel:
    """Load in ONNX Runtime, whose inputs and outputs stay in its own values, as a loop of tokens keeps them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def run(feeds: Feeds) -> list[Any]:
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        return list(session.run_with_ort_values(outputs, values))

    return run


def measure_speed(name: str, folder: pathlib.Path, rounds: int) -> SpeedRow:
    """Compile a model twice, with defaults and with all engines, and time both beside ONNX Runtime."""
    path, request = write_network(name, folder)
    by_default = _compile(path, path.with_name("default.onnx"))
    with_engines = _compile(path, path.with_name("engines.onnx"), "--all-engines")
    recipe = functools.partial(Recipe, engine=NATIVE, threads=None)
    recipes = {
        NATIVE: recipe(setting=NATIVE, open=open_with_ortvalues, model=path),
        COMPILED: recipe(setting=COMPILED, open=open_compiled, model=path.with_name("default.onnx")),
        "engines": recipe(setting="engines", open=open_compiled, model=path.with_name("engines.onnx")),
    }
    ratios: dict[str, dict[int, float]] = {COMPILED: {}, "engines": {}}
    decoder = "past" in str(request(1, 1).keys())
    with contextlib.ExitStack() as running:
        processes = {setting: running.enter_context(CandidateProcess(recipe)) for setting, recipe in recipes.items()}
        for past in PAST_LENGTHS if decoder else (0,):
            feeds = request(1 if decoder else 64, past)
            turns = {setting: functools.partial(process.take_turn, feeds) for setting, process in processes.items()}
            interleaving = Interleaving(turns, seconds_per_turn=0.3, settle_s=0.02)
            interleaving.run(rounds)
            latencies = interleaving.latencies()
            for setting, found in ratios.items():
                found[past] = ratio_with_interval(latencies[NATIVE], latencies[setting])[0]
    loaded, empty = _process_mb(path.with_name("engines.onnx"), request(TOKENS, TOKENS)), _process_mb(None, {})
    return SpeedRow(
        name=name,
        engine_nodes=with_engines["report"]["engine_nodes"] / with_engines["report"]["nodes"],
        segments=with_engines["segments"],
        chosen=by_default["engine"] if by_default["segments"] else NATIVE,
        ratios=ratios[COMPILED],
        engine_ratios=ratios["engines"],
        memory_over_file=(loaded - empty) * 2**20 / sum(f.stat().st_size for f in path.parent.glob("model.onnx*")),
    )


def measure_decoding(name: str, folder: pathlib.Path) -> DecodingRow:
    """Decode greedily from an empty past, in process and over gRPC."""
    path, request = write_network(name, folder)
    compiled = path.with_name("engines.onnx")
    _compile(path, compiled, "--all-engines")
    first_s, later_s, growth_mb = _in_process(_empty_past, compiled, request(TOKENS, 0), request(TOKENS, TOKENS))
    expected = _in_process(_decoded, open_with_names, path, request(TOKENS, 0))
    ours = _in_process(_decoded, open_compiled, compiled, request(TOKENS, 0))
    with running_server({name: ServedFile(file=compiled, engine="openvino")}, path.parent, None) as channel:

        def call(feeds: Feeds) -> Feeds:
            answer = inference_call(channel, name, feeds)()
            return {
                output.name: np.frombuffer(raw, np.float32).reshape(output.shape)
                for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
            }

        served = _greedy(call, request(TOKENS, 0))
    return DecodingRow(
        name=name,
        first_s=first_s,
        later_s=later_s,
        growth_mb=growth_mb,
        equal_tokens=sum(a == b for a, b in zip(ours, expected, strict=True)),
        equal_served=sum(a == b for a, b in zip(served, expected, strict=True)),
    )


def open_with_names(model: pathlib.Path, _threads: int | None) -> Callable[[Feeds], Feeds]:
    """Load in ONNX Runtime; answers by name."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))


def _compile(path: pathlib.Path, compiled: pathlib.Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "trtnode", "compile", str(path), "-o", str(compiled), "--json", *options]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return told


def _in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    with contextlib.closing(SubprocessWorker()) as worker:
        return worker.call(function, LIMIT_S, *arguments)


def _process_mb(compiled: pathlib.Path | None, feeds: Feeds) -> float:
    return float(_in_process(_loaded_mb, compiled, feeds))


def _loaded_mb(compiled: pathlib.Path | None, feeds: Feeds) -> float:
    """Return the memory of this process once it has answered; without a model, once the libraries are loaded."""
    openvino.Core()
    run = open_compiled(compiled, None) if compiled else None
    if run is not None:
        run(feeds)
    return memory_mb(os.getpid())


def _empty_past(compiled: pathlib.Path, empty: Feeds, filled: Feeds) -> tuple[float, float, float]:
    run = open_compiled(compiled, None)
    run(filled)
    before = memory_mb(os.getpid())
    times = [_seconds(run, empty) for _ in range(6)]
    return times[0], float(np.median(times[1:])), memory_mb(os.getpid()) - before


def _seconds(run: RunModel, feeds: Feeds) -> float:
    began = time.perf_counter()
    run(feeds)
    return time.perf_counter() - began


def _decoded(opener: Callable[..., Any], path: pathlib.Path, prompt: Feeds) -> list[int]:
    return _greedy(opener(path, None), prompt)


def _greedy(run: Callable[[Feeds], Feeds], prompt: Feeds) -> list[int]:
    """Decode with the most probable token each time; the first output holds logits, the others the past."""
    feeds, tokens, length = dict(prompt), [], prompt["input_ids"].shape[1]
    for _ in range(GREEDY_TOKENS):
        answer = run(feeds)
        tokens.append(int(answer["output"][0, -1].argmax()))
        length += 1
        feeds |= {name.replace("present", "past"): value for name, value in answer.items() if name != "output"}
        feeds |= {"input_ids": np.array([tokens[-1:]]), "attention_mask": np.ones((1, length), np.int64)}
    return tokens
