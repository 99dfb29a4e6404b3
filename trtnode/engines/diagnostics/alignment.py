"""Finds where a compiled model leaves its reference: runs both, and compares them value by value."""

from __future__ import annotations

import dataclasses
import logging
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.build.tolerance import NOISE_FACTOR
from trtnode.engines.diagnostics.observation import Values, run_compiled, run_natively
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import only_inputs
from trtnode.engines.precision.accuracy_budget import Comparison
from trtnode.engines.precision.options import AccuracyBudget
from trtnode.engines.runtime.engine_loading import chosen_engine
from trtnode.engines.runtime.plan import PlanStage, plan_stages
from trtnode.engines.runtime.plan_loading import signature_of
from trtnode.partitioner.compiled.trtnode import view_with_engines
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model

logger = logging.getLogger(__name__)

MIN_SQNR_DB: Mapping[str, float] = {"fp32": 60.0, "fp16": 40.0, "bf16": 25.0, "int8": 10.0, "fp8": 10.0, "int4": 10.0}
"""A value whose signal-to-quantization-noise ratio is lower differs by more than rounding, by precision."""


NOISE_DB = 20 * math.log10(NOISE_FACTOR)
"""Allowed error of quantized values beyond that between two native computations."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AlignedValue:
    """One value that both models compute.

    Attributes:
        name: ONNX value name.
        stage: The stage of the compiled model that makes it: an engine, or nodes that run natively.
        node: The node that makes it natively; None for an output of an engine.
        cosine: Cosine similarity of both.
        max_abs: Largest difference of any element.
        sqnr_db: Signal-to-quantization-noise ratio in decibels, 10 log10(sum(reference^2) / sum(difference^2));
            infinite where both are equal.
        diverges: True if the ratio is less than the limit.
        native_sqnr_db: The same ratio of other ways to run a quantized model in ONNX Runtime, the least; None if the
            model isn't quantized. A value that differs by no more than ``NOISE_DB`` above it doesn't diverge.
    """

    name: str
    stage: str
    node: str | None
    cosine: float
    max_abs: float
    sqnr_db: float
    diverges: bool
    native_sqnr_db: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, which have no infinity."""
        fields = dataclasses.asdict(self).items()
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The result of a comparison.

    Attributes:
        values: In the order in which the compiled model computes them.
        missing: Names of values that the reference lacks.
        min_sqnr_db: The limit below which a value diverges.
    """

    values: tuple[AlignedValue, ...]
    missing: tuple[str, ...]
    min_sqnr_db: float

    @property
    def first(self) -> AlignedValue | None:
        """The first value that diverges. Its stage or node is at fault, because its inputs are right."""
        return next((value for value in self.values if value.diverges), None)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "aligned": self.first is None,
            "first": self.first.as_json() if self.first else None,
            "min_sqnr_db": self.min_sqnr_db,
            "values": [value.as_json() for value in self.values],
            "missing": list(self.missing),
        }


def align(
    model: pathlib.Path,
    reference: pathlib.Path,
    feeds: Values,
    *,
    min_sqnr_db: float | None = None,
    trust: Trust | None = None,
) -> Alignment:
    """Run a compiled model and a reference on the same inputs, and compare every value that leaves a stage.

    Args:
        model: A compiled model.
        reference: The model that it was made from, or another with the same value names. ONNX Runtime runs it.
        feeds: An array for each input; others are left out.
        min_sqnr_db: The limit below which a value diverges; by default the ratio that the engines' precision leaves.
        trust: The engines that may run; None takes the defaults.

    Raises:
        PartitionError: A file is no model.
        InvalidInputError: The inputs do not fit the model.
        EngineError: The reference is compiled, the model isn't, or one of them does not run on these inputs.
    """
    compiled = load_model(model)
    signature = signature_of(Graph.of(compiled))
    graph = view_with_engines(compiled)
    feeds = signature.check(only_inputs(feeds, signature.inputs), None)
    stages = plan_stages(graph, dict.fromkeys(graph.names, True))
    if not any(stage.is_engine for stage in stages):
        raise EngineError(
            f"{model}: no node of it has an engine, so there is nothing to align. "
            "Compile it first, with --all-engines if none is faster here."
        )
    if min_sqnr_db is None:
        min_sqnr_db = min(_least_sqnr_db(stage) for stage in stages if stage.is_engine)
    names = {value.name or "" for stage in stages for value in stage.outputs}
    with TemporaryFolder() as folder:
        expected, others = run_natively(reference, names, feeds, folder)
        actual = run_compiled(model, names, feeds, trust or Trust())
    values = tuple(
        _beside(_compare(stage, value, expected[name], actual[name], min_sqnr_db), expected[name], others)
        for stage in stages
        for value in stage.outputs
        if (name := value.name or "") in expected and name in actual
    )
    missing = tuple(sorted(names - expected.keys()))
    return Alignment(values=values, missing=missing, min_sqnr_db=min_sqnr_db)


def _least_sqnr_db(stage: PlanStage) -> float:
    """Return the ratio that the least exact precision of an engine leaves."""
    _, envelope = chosen_engine(stage.nodes[0].op)
    return min(MIN_SQNR_DB[precision] for precision in envelope.precision_effective.split("+"))


def _producer(value: ir.Value) -> str | None:
    node = value.producer()
    return None if node is None else node.name or node.op_type


def _compare(
    stage: PlanStage, value: ir.Value, expected: np.ndarray, actual: np.ndarray, min_sqnr_db: float
) -> AlignedValue:
    name = value.name or ""
    comparison = Comparison(AccuracyBudget())
    comparison.add({name: expected}, {name: actual})
    figures = comparison.figures()
    sqnr_db = signal_to_noise_db(expected, actual)
    return AlignedValue(
        name=name,
        stage=stage.name,
        node=None if stage.is_engine else _producer(value),
        cosine=figures.cosine,
        max_abs=figures.max_abs,
        sqnr_db=sqnr_db,
        diverges=not sqnr_db >= min_sqnr_db,
    )


def _beside(value: AlignedValue, expected: np.ndarray, others: Sequence[Values]) -> AlignedValue:
    """Add how far other native computations are from the first; a value that is no worse doesn't diverge."""
    ratios = [signal_to_noise_db(expected, other[value.name]) for other in others if value.name in other]
    if not ratios:
        return value
    diverges = value.diverges and not value.sqnr_db >= min(ratios) - NOISE_DB
    return dataclasses.replace(value, native_sqnr_db=min(ratios), diverges=diverges)


def signal_to_noise_db(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the signal-to-quantization-noise ratio of one value, in decibels.

    Returns:
        Infinity where both are equal; minus infinity where shapes differ, or what is finite, or what is no number.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return -math.inf
    if expected.dtype.kind in "OUSb":
        return math.inf if np.array_equal(expected, actual) else -math.inf
    signal, noise = expected.astype(np.float64), actual.astype(np.float64)
    same = (signal == noise) | (np.isnan(signal) & np.isnan(noise))
    if same.all():
        return math.inf
    error = noise[~same] - signal[~same]
    power = float(np.square(signal[np.isfinite(signal)]).sum())
    if not np.isfinite(error).all() or power == 0:
        return -math.inf
    return 10 * math.log10(power / float(np.square(error).sum()))
