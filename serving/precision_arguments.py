"""Precision options of the command line."""

from __future__ import annotations

import argparse
import pathlib

from engines import AccuracyBudget, Calibration, PrecisionOptions, PrecisionRule
from serving.errors import InvalidOptionError

RANGES_SUFFIX = ".json"
"""Of a calibration table; samples are never JSON."""


def precision_from(arguments: argparse.Namespace) -> PrecisionOptions:
    """Translate command-line arguments.

    Raises:
        InvalidOptionError: A rule has another form.
    """
    return PrecisionOptions(
        asked=arguments.precision,
        rules=tuple(_rule(text) for text in arguments.precision_rule),
        calibration=_calibration(arguments.calibration, arguments.calibration_method),
        budget=AccuracyBudget.of(
            min_cosine=arguments.min_cosine,
            min_top1_agreement=arguments.min_top1_agreement,
            max_abs=arguments.max_abs,
            metric=arguments.metric,
        ),
    )


def _rule(text: str) -> PrecisionRule:
    try:
        return PrecisionRule.parse(text)
    except ValueError as error:
        raise InvalidOptionError("--precision-rule", str(error)) from None


def _calibration(source: str | None, method: str) -> Calibration:
    if source is not None and source.endswith(RANGES_SUFFIX):
        return Calibration(ranges=pathlib.Path(source), method=method)
    return Calibration(data=source, method=method)
