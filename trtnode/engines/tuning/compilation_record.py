"""The record of a model's compilations on this machine, which each of them reads when it begins and writes once.

It belongs to the model, the options and the versions. The machine, threads, samples and what else changes measurements
alone are the conditions of a decision.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

from trtnode.engines.artifact.cache import engine_key, recall
from trtnode.engines.artifact.files import sha256_of_file
from trtnode.engines.artifact.temporary_folder import PREFIX
from trtnode.engines.backends.build_environment import build_environment, measuring_environment
from trtnode.engines.build.context import CompileContext
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.engines.precision.rules import EXACTNESS
from trtnode.engines.quantization.table import CalibrationTable
from trtnode.partitioner.cut.labels import ReasonCode, Verdict

T = TypeVar("T")

MOST_CONDITIONS = 8
"""Most conditions of which a record keeps a decision: calibration data, for example, may change for ever."""

Demoted = Mapping[str, Verdict]
"""Nodes that were taken out of engines, and why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The nodes that run natively since their engines were measured, and the figures for the report."""

    demoted: Demoted
    figures: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPlan:
    """The precision of each node by name, the figures for the report, and the ranges of int8, if it needs any."""

    plan: Mapping[str, str]
    figures: Mapping[str, Any]
    table: CalibrationTable | None

    def __post_init__(self) -> None:
        """Check the precisions."""
        if not EXACTNESS.keys() >= set(self.plan.values()):
            raise ValueError("it has an unknown precision")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SparseChoice:
    """The gain of sparse engines, and the figures for the report; None where nothing was measured."""

    gains: bool
    figures: Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompilationRecord:
    """The decisions about a model with certain options on this machine.

    Attributes:
        demoted: By the last compilation; None where there was none.
        choices: Engines that were measured, by conditions.
        plans: Precisions that were searched, by conditions.
        sparse: Sparse engines that were measured against dense ones, by conditions.
    """

    demoted: Demoted | None = None
    choices: Mapping[str, EngineChoice] = dataclasses.field(default_factory=dict)
    plans: Mapping[str, PrecisionPlan] = dataclasses.field(default_factory=dict)
    sparse: Mapping[str, SparseChoice] = dataclasses.field(default_factory=dict)


def recall_record(context: CompileContext, options: CompileOptions | None = None) -> CompilationRecord:
    """Return what compilations of a model have learnt; nothing is known where there was none, or no cache.

    Args:
        context: A compilation.
        options: Others than its own.
    """
    found = recall(context.cache, _key(context, options or context.options), _read) if context.builds else None
    return found or CompilationRecord()


def keep_record(context: CompileContext, record: CompilationRecord) -> None:
    """Store what is known after a compilation."""
    if context.cache is not None:
        context.cache.put_record(_key(context, context.options), dataclasses.asdict(record))


def with_latest(known: Mapping[str, T], here: str, decision: T) -> dict[str, T]:
    """Return decisions by their conditions with one more, which is the last, and without the first of too many."""
    others = [(under, one) for under, one in known.items() if under != here]
    return dict([*others, (here, decision)][-MOST_CONDITIONS:])


def conditions(context: CompileContext, **more: str) -> str:
    """Return what a measurement depends on besides the options of its record."""
    samples = context.options.check_inputs
    return engine_key(
        source=context.source.key,
        threads=str(context.options.threads),
        samples=sha256_of_file(samples) if samples else "",
        **measuring_environment(context.backend, native_version(), context.options.build),
        **more,
    )


def _key(context: CompileContext, options: CompileOptions) -> str:
    calibration = options.calibration
    if calibration.data is not None and PREFIX in calibration.data:  # samples made of texts: their name has a hash
        calibration = dataclasses.replace(calibration, data=pathlib.Path(calibration.data).name)
    unconditional = dataclasses.replace(
        options,
        engine=context.engine,
        calibration=calibration,
        check_inputs=None,
        threads=None,
        shares_cores=False,
        measure_again=False,
    )
    return engine_key(
        purpose="compilation",
        source=context.source.sha256,
        options=json.dumps(dataclasses.asdict(unconditional), sort_keys=True, default=str),
        **build_environment(context.backend, options.build),
    )


def _read(fields: Mapping[str, Any]) -> CompilationRecord:
    demoted = fields["demoted"]
    return CompilationRecord(
        demoted=None if demoted is None else _demoted(demoted),
        choices={
            name: EngineChoice(demoted=_demoted(one["demoted"]), figures={**one["figures"]})
            for name, one in fields["choices"].items()
        },
        plans={name: _plan(one) for name, one in fields["plans"].items()},
        sparse={name: SparseChoice(**one) for name, one in fields["sparse"].items()},
    )


def _plan(fields: Mapping[str, Any]) -> PrecisionPlan:
    table = fields["table"] and CalibrationTable.from_json(fields["table"])
    return PrecisionPlan(plan={**fields["plan"]}, figures={**fields["figures"]}, table=table)


def _demoted(fields: Mapping[str, Mapping[str, str]]) -> Demoted:
    return {name: Verdict(ReasonCode(one["code"]), str(one["detail"])) for name, one in fields.items()}
