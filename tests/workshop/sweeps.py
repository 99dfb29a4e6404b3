"""Small models in an engine of OpenVINO and in ONNX Runtime, over many types, attributes, sizes and values."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from model_texts import parse
from trtnode.engines.artifact.envelope import Envelope, current_platform
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.tolerance import find_difference
from trtnode.engines.errors import BuildError, ExecutionError
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up

TYPES = {
    "float": np.float32, "float16": np.float16, "int8": np.int8, "uint8": np.uint8, "int32": np.int32,
    "int64": np.int64, "bool": np.bool_,
}  # fmt: skip

Feeds = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """A node as a graph, its constants, and requests."""

    graph: str
    feeds: Sequence[Feeds]
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    opset: int = 21

    def model(self) -> onnx.ModelProto:
        arrays = {name: np.asarray(value) for name, value in self.constants.items()}
        return parse(self.graph, opset=self.opset, **arrays)


def wrong_answers(cases: Sequence[Case], folder: pathlib.Path) -> tuple[list[str], int]:
    """Wrong answers of engines, of the cases whose nodes are labelled for them; and the number of these cases."""
    outcomes = [_outcome(case, folder / "model.onnx") for case in cases]
    told = [f"{case.graph}: {outcome}" for case, outcome in zip(cases, outcomes, strict=True) if outcome]
    return told, sum(outcome is not None for outcome in outcomes)


def _outcome(case: Case, path: pathlib.Path) -> str | None:
    """The first difference, or an empty text; None where no engine takes the case, or ONNX Runtime doesn't."""
    onnx.save(case.model(), path)
    try:
        native = onnxruntime.InferenceSession(path, _quiet(), providers=["CPUExecutionProvider"])
    except Exception:
        return None
    graph, backend = clean_up(load_model(path)), get_backend("openvino")
    if not graph.nodes or not all(backend.label(node).supported for node in graph.nodes):
        return None
    try:
        bytes_ = backend.build(path, BuildOptions())
    except BuildError:
        return None
    engine = backend.load(bytes_, _envelope(path, bytes_))
    for feeds in case.feeds:
        try:
            expected = native.run(None, dict(feeds))
        except Exception:
            continue
        try:
            engine.bind([np.ascontiguousarray(feeds[spec.name]) for spec in engine.inputs], None)
            actual = engine.run()
        except ExecutionError:
            return None  # as for a request, which native execution answers
        problems = (find_difference(e, a) for e, a in zip(expected, actual, strict=True))
        if problem := next(filter(None, problems), None):
            return problem
    return ""


def _envelope(path: pathlib.Path, engine: bytes) -> Envelope:
    graph, backend = Graph.of(load_model(path)), get_backend("openvino")
    return Envelope(
        backend=backend.name,
        backend_version=backend.version(),
        platform=current_platform(),
        device=backend.target_device(BuildOptions()),
        precision_asked="fp32",
        precision_effective="fp32",
        options=dict(backend.build_properties(BuildOptions())),
        inputs=tuple(TensorSpec.of(v) for v in graph.inputs),
        outputs=tuple(TensorSpec.of(v) for v in graph.outputs),
        engine_sha256=hashlib.sha256(engine).hexdigest(),
        segment_sha256="",
        builder_version="",
    )


def _quiet() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def values(kind: str, count: int, seed: int = 0) -> list[np.ndarray]:
    """Numbers of a type: its whole range and, of floats, ties, zeros of both signs, small and large ones."""
    rng, dtype = np.random.default_rng(seed), np.dtype(TYPES[kind])
    if dtype.kind == "b":
        return [rng.integers(0, 2, count).astype(bool)]
    if dtype.kind == "f":
        known = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 1, -1, 3, 0.1, 100, -100]
        some = np.concatenate([known, rng.normal(0, 1, max(0, count - len(known)))])[:count]
        return [
            some.astype(dtype),
            *(rng.normal(0, scale, count).clip(-6e4, 6e4).astype(dtype) for scale in (1e-3, 10, 3e4)),
        ]
    limits = np.iinfo(np.int32 if dtype.itemsize == 8 else dtype)
    near = rng.integers(max(limits.min, -8), 9, count)
    return [near.astype(dtype), rng.integers(limits.min, limits.max, count, endpoint=True).astype(dtype)]


def not_zero(array: np.ndarray) -> np.ndarray:
    """Divisors that ONNX defines a quotient of."""
    return np.where((array == 0) | (array == -1), 1, array).astype(array.dtype)


def pairs(kind: str, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each kind of values beside each other."""
    return itertools.product(values(kind, count), values(kind, count, seed=1))
