"""Options of precision: the one asked for, its calibration and its accuracy budget."""

from __future__ import annotations

import dataclasses
import pathlib

from trtnode.engines.backends.names import RANGES_SUFFIX
from trtnode.engines.precision.accuracy_budget import AccuracyBudget, DefaultBudget
from trtnode.engines.precision.rules import PrecisionRule

FEWEST_SAMPLES = 8
"""Fewer samples are accepted only where the user allows it: the budget would be met on the samples of the ranges."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Source of ranges, and samples to measure accuracy on."""

    data: str | None = None
    """Samples of the inputs: an .npz file, a folder of them, or ``module:function``."""
    ranges: pathlib.Path | None = None
    """A table that ``trtnode calibrate`` wrote; without one, ranges are learnt from the data."""
    method: str = "mean"
    """Method by which ranges follow from samples."""
    percentile: float = 99.99
    """Share of values to keep, in percent, for the method of this name."""
    samples: int | None = 200
    """Most samples to learn from; None for all."""
    allow_few: bool = False
    """True if ranges from fewer than ``FEWEST_SAMPLES`` samples may quantize a model."""

    @classmethod
    def of(cls, source: str | None, *, method: str = "minmax", allow_few: bool = False) -> Calibration:
        """Return the calibration by a table, which ends in ``RANGES_SUFFIX``, or by samples."""
        is_table = source is not None and source.endswith(RANGES_SUFFIX)
        ranges = pathlib.Path(source) if source is not None and is_table else None
        return cls(data=None if is_table else source, ranges=ranges, method=method, allow_few=allow_few)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionOptions:
    """Precision that engines are to compute in, and the limits of its cost."""

    asked: str = "fp32"
    """``fp32``, ``fp16``, ``bf16``, ``int8``, or ``auto`` for the fastest measured one of each segment."""
    rules: tuple[PrecisionRule, ...] = ()
    """Other precisions for some nodes; the first rule that fits a node counts."""
    calibration: Calibration = dataclasses.field(default_factory=Calibration)
    """Source of ranges."""
    budget: AccuracyBudget = dataclasses.field(default_factory=DefaultBudget)
    """Limits of accuracy. A precision that exceeds them is given up."""

    @property
    def is_float32(self) -> bool:
        """True if only float32 is asked for."""
        return {self.asked, *(rule.precision for rule in self.rules)} == {"fp32"}
