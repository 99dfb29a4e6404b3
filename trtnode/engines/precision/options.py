"""Options of precision: the one asked for, its calibration and its accuracy budget."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Annotated

from trtnode.engines.backends.names import (
    PRECISION_NAMES,
    RANGES_SUFFIX,
    AskedPrecision,
    CalibrationMethod,
    PrecisionName,
)
from trtnode.partitioner.options import Option

FEWEST_SAMPLES = 8
"""Fewer samples are accepted only where the user allows it: the budget would be met on the samples of the ranges."""

LARGEST_DIFFERENCE = 1e30


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRule:
    """Another precision for some nodes: those whose identity fits a glob, or those of an operator."""

    precision: Annotated[PrecisionName, Option("The precision of these nodes.")]
    node: Annotated[str | None, Option("Glob over node names.")] = None
    op: Annotated[str | None, Option("Operator name.")] = None

    @classmethod
    def parse(cls, text: str) -> PrecisionRule:
        """Read ``node=GLOB:PRECISION`` or ``op=TYPE:PRECISION``.

        Raises:
            ValueError: The text has another form.
        """
        selector, _, word = text.rpartition(":")
        kind, _, pattern = selector.partition("=")
        for precision in PRECISION_NAMES:
            if precision == word and kind in ("node", "op") and pattern:
                return cls(precision=precision, **{kind: pattern})
        forms = "node=GLOB:PRECISION or op=TYPE:PRECISION, with one of " + ", ".join(PRECISION_NAMES)
        raise ValueError(f"{text!r} should be {forms}")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the fault of a rule about all nodes, which would be a precision."""
        if self.node is None and self.op is None:
            yield "precision", "should have a key 'node' or 'op' beside it that says which nodes it is about"

    def __str__(self) -> str:
        selectors = (f"{kind}={value}" for kind, value in (("node", self.node), ("op", self.op)) if value is not None)
        return f"{' '.join(selectors)}:{self.precision}"


def _rules_of(texts: Sequence[str]) -> tuple[PrecisionRule, ...]:
    return tuple(map(PrecisionRule.parse, texts))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The source of INT8 ranges, and samples to measure accuracy on."""

    data: Annotated[
        str | None,
        Option(
            "Samples of the inputs: an .npz file, a folder of them, texts (.txt, .jsonl), or module:function. Or a "
            "ranges.json of `trtnode calibrate`.",
            name="calibration",
            metavar="DATA",
            is_source=True,
        ),
    ] = None
    ranges: Annotated[
        pathlib.Path | None,
        Option(
            "A ranges.json of `trtnode calibrate`; without one, ranges are learnt from the samples.",
            name="calibration_ranges",
            metavar="FILE",
        ),
    ] = None
    method: Annotated[CalibrationMethod, Option("How ranges follow from samples.", name="calibration_method")] = "mean"
    percentile: Annotated[
        float,
        Option(
            "Values to keep, in percent, by the method of this name.",
            least=51,
            most=100,
            name="calibration_percentile",
            metavar="P",
        ),
    ] = 99.99
    samples: Annotated[
        int | None,
        Option(
            "Most samples to learn from; none for all.", least=1, most=10**9, name="calibration_samples", metavar="N"
        ),
    ] = 200
    allow_few_samples: Annotated[
        bool,
        Option(f"Quantize by fewer than {FEWEST_SAMPLES} samples, although the accuracy budget then says little."),
    ] = False

    @property
    def table(self) -> pathlib.Path | None:
        """The file of ranges, under either name."""
        return pathlib.Path(self.data) if self.ranges is None and self.data and self.has_table else self.ranges

    @property
    def sampled(self) -> str | None:
        """The source of samples; None if there is only a table."""
        return None if self.has_table else self.data

    @property
    def has_table(self) -> bool:
        """True if ``data`` names a table."""
        return self.data is not None and self.data.endswith(RANGES_SUFFIX)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyBudget:
    """Limits that answers must keep against those in float32, on samples that the calibration has not seen.

    Without any, the cosine is limited: see ``adapted``.
    """

    min_cosine: Annotated[
        float | None,
        Option(
            "Smallest cosine similarity of any output; without any limit, 0.99, and 0.995 for a classifier; of "
            "vectors, recall@10 >= 0.97 and recall@1 >= 0.95 too.",
            least=-1,
            most=1,
            metavar="X",
        ),
    ] = None
    min_top1_agreement: Annotated[
        float | None, Option("Smallest share of samples whose best class stays.", least=0, most=1, metavar="X")
    ] = None
    max_abs: Annotated[
        float | None,
        Option("Largest absolute difference of any element.", least=0, most=LARGEST_DIFFERENCE, metavar="X"),
    ] = None
    metric: Annotated[
        str | None,
        Option(
            "recall@K, spearman or psnr, each with a limit if need be (recall@10>=0.97,psnr), or a function of your "
            "own, whose results are good enough from 0 on.",
            metavar="NAMES|MODULE:FUNCTION",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """Precision that engines are to compute in, and the limits of its cost."""

    precision: Annotated[
        AskedPrecision, Option("Precision of engines; auto takes the fastest that stays inside the budget.")
    ] = "fp32"
    precision_rules: Annotated[
        tuple[PrecisionRule, ...],
        Option(
            "Another precision for some nodes, the first rule that fits counts: node=GLOB:PRECISION or "
            "op=TYPE:PRECISION.",
            metavar="RULE",
            read=_rules_of,
        ),
    ] = ()
    calibration: Annotated[Calibration, Option("The source of INT8 ranges.")] = Calibration()
    budget: Annotated[
        AccuracyBudget, Option("The distance that answers may move from FP32 before a precision is given up.")
    ] = AccuracyBudget()

    @property
    def is_float32(self) -> bool:
        """True if only float32 is asked for."""
        return {self.precision, *(rule.precision for rule in self.precision_rules)} == {"fp32"}
