"""Small models in an engine of OpenVINO and in ONNX Runtime, over many types, attributes, sizes and values."""

from __future__ import annotations

import contextlib
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

MOST_TOGETHER = 24
"""Cases that are tried in one engine: to make one costs much more than a node in it."""


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


@dataclasses.dataclass(frozen=True)
class _Answered:
    """A case that ONNX Runtime answers and the labels give to engines; only requests that it answers."""

    case: Case
    model: onnx.ModelProto
    answers: Sequence[tuple[Feeds, Sequence[np.ndarray]]]


def wrong_answers(cases: Sequence[Case], folder: pathlib.Path) -> tuple[list[str], int]:
    """Wrong answers of engines, of the cases whose nodes are labelled for them; and the number of these cases."""
    path = folder / "model.onnx"
    labelled = [one for case in cases if (one := _answered(case, path))]
    groups = itertools.groupby(labelled, key=lambda one: one.case.opset)
    found = [outcome for _, group in groups for outcome in _outcomes(list(group), path)]
    return [f"{case.graph}: {problem}" for case, problem in found if problem], len(found)


def _answered(case: Case, path: pathlib.Path) -> _Answered | None:
    model, backend = case.model(), get_backend("openvino")
    onnx.save(model, path)
    try:
        native = onnxruntime.InferenceSession(path, _quiet(), providers=["CPUExecutionProvider"])
    except Exception:
        return None
    graph = clean_up(load_model(path))
    if not graph.nodes or not all(backend.label(node).supported for node in graph.nodes):
        return None
    answers = []
    for feeds in case.feeds:
        with contextlib.suppress(Exception):
            answers.append((feeds, native.run(None, dict(feeds))))
    return _Answered(case, model, answers)


def _outcomes(cases: Sequence[_Answered], path: pathlib.Path) -> list[tuple[Case, str]]:
    """The first difference of each case, or an empty text, without cases that no engine takes.

    Cases are tried in one engine together. Where they don't all agree in it, both halves of them are tried again.
    """
    if len(cases) > MOST_TOGETHER or (len(cases) > 1 and _problem(cases, path) != ""):
        middle = len(cases) // 2
        return [*_outcomes(cases[:middle], path), *_outcomes(cases[middle:], path)]
    if len(cases) > 1:
        return [(one.case, "") for one in cases]
    return [(one.case, problem) for one in cases if (problem := _problem([one], path)) is not None]


def _problem(cases: Sequence[_Answered], path: pathlib.Path) -> str | None:
    """The first difference of any, or an empty text; None where no engine takes them."""
    backend = get_backend("openvino")
    onnx.save(_joined([one.model for one in cases]), path)
    try:
        bytes_ = backend.build(path, BuildOptions())
    except BuildError:
        return None
    engine = backend.load(bytes_, envelope_of(path, bytes_))
    for turn in range(max(len(one.answers) for one in cases)):
        answers = [one.answers[min(turn, len(one.answers) - 1)] for one in cases]
        feeds = {f"{n}_{name}": array for n, (given, _) in enumerate(answers) for name, array in given.items()}
        expected = [array for _, arrays in answers for array in arrays]
        try:
            engine.bind([np.ascontiguousarray(feeds[spec.name]) for spec in engine.inputs], None)
            actual = engine.run()
        except ExecutionError:
            return None  # as for a request, which native execution answers
        problems = (find_difference(e, a) for e, a in zip(expected, actual, strict=True))
        if problem := next(filter(None, problems), None):
            return problem
    return ""


def _joined(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """One model of all; a number stands before the names of each."""
    whole = onnx.ModelProto()
    whole.CopyFrom(models[0])
    whole.graph.Clear()
    whole.graph.name = "joined"
    for number, model in enumerate(models):
        graph = onnx.compose.add_prefix(model, f"{number}_").graph
        for value in (*graph.input, *graph.output):
            for dimension in value.type.tensor_type.shape.dim:
                if dimension.dim_param:
                    dimension.dim_param = f"{number}_{dimension.dim_param}"
        for field in ("node", "input", "output", "initializer"):
            getattr(whole.graph, field).extend(getattr(graph, field))
    return whole


def envelope_of(path: pathlib.Path, engine: bytes) -> Envelope:
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
