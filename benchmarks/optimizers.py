"""Compares ONNX Runtime with and without optimizations, and onnx.reference: ``python -m benchmarks.optimizers``.

It takes the cases of onnx's own suite, and the models of a folder, where ONNX Runtime alone answers: onnx.reference is
too slow for them. Printed is what differs by more than an engine may. A pattern that is found belongs into
``engines/onnxruntime/workarounds/optimizers.py``. Returns 1 if optimizations change an answer.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

from trtnode.engines.backends.reference import ReferenceSession
from trtnode.engines.build.tolerance import accumulates_quantized, find_difference
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import find_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.runtime.plan_loading import signature_of
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.loading import load_model, read_proto

Answer = list[Any] | str
"""Results, or the message of an error."""


def suite_problems() -> Iterator[tuple[str, str]]:
    """Yield cases of onnx's suite, and what differs."""
    for case in collect_testcases(None):
        if case.model is None or not case.data_sets:
            continue
        feeds = dict(zip((v.name for v in case.model.graph.input), case.data_sets[0][0], strict=False))
        plain, optimized = _natively(case.model, feeds)
        if problem := _difference(plain, optimized, quantized=False):
            yield case.name, f"optimized: {problem}"
        reference = _answer(functools.partial(ReferenceSession, case.model), feeds)
        if problem := None if isinstance(reference, str) else _difference(plain, reference, quantized=False):
            yield case.name, f"onnx.reference: {problem}"


def model_problems(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield models of a folder, and what differs."""
    for path in sorted(folder.rglob("*.onnx")):
        try:
            signature = signature_of(Graph.of(load_model(path)))
            samples = find_samples(NativeSession(path, optimize=False), signature.inputs, None)
            quantized = accumulates_quantized(n.op_type for n in protobuf_walk.nodes(read_proto(path)))
        except (EngineError, PartitionError) as error:
            yield str(path), f"left out: {error}"
            continue
        for feeds in samples:
            if problem := _difference(*_natively(path, feeds), quantized=quantized):
                yield str(path), f"optimized: {problem}"


def _natively(model: pathlib.Path | onnx.ModelProto, feeds: Mapping[str, Any]) -> tuple[Answer, Answer]:
    plain = _answer(functools.partial(NativeSession, model, optimize=False), feeds)
    return plain, _answer(functools.partial(NativeSession, model), feeds)


def _answer(open_session: Callable[[], NativeSession | ReferenceSession], feeds: Mapping[str, Any]) -> Answer:
    try:
        return open_session().run(feeds)
    except EngineError as error:
        return str(error)


def _difference(plain: Answer, other: Answer, *, quantized: bool) -> str | None:
    if isinstance(plain, str) or isinstance(other, str):
        return None if isinstance(plain, str) else f"fails: {other}"
    arrays = [np.asarray(value) if isinstance(value, np.generic) else value for value in other]
    pairs = [(a, b) for a, b in zip(plain, arrays, strict=True) if type(a) is type(b)]
    problems = (find_difference(a, b, quantized=quantized) for a, b in pairs)
    try:
        return next((problem for problem in problems if problem), None)
    except AttributeError:  # sequences within sequences
        return "its structure is another"


def main() -> int:
    """Print each difference on a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimizers", description=__doc__)
    parser.add_argument("--models", type=pathlib.Path, help="folder of models; without it, onnx's suite is compared")
    folder = parser.parse_args().models
    changed = 0
    for name, problem in suite_problems() if folder is None else model_problems(folder):
        print(f"{name}: {problem}", flush=True)
        changed |= problem.startswith("optimized")
    return changed


if __name__ == "__main__":
    raise SystemExit(main())
