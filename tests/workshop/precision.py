"""Precisions that tests ask for, and the envelopes that come of them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.backends.names import AskedPrecision
from trtnode.engines.precision.options import AccuracyBudget, Calibration, PrecisionOptions, PrecisionRule

SAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "digits" / "calibration.npz"
DATA = Calibration(data=str(SAMPLES), method="minmax")


def precision_options(
    asked: AskedPrecision, *rules: str, calibration: Calibration = DATA, **limits: Any
) -> PrecisionOptions:
    return PrecisionOptions(
        precision=asked,
        precision_rules=tuple(map(PrecisionRule.parse, rules)),
        calibration=calibration,
        budget=AccuracyBudget(**limits),
    )


def envelope(compiled: CompiledModel) -> dict[str, Any]:
    (node,) = (n for n in compiled.model.graph.node if n.op_type == "TrtNode")
    found: dict[str, Any] = json.loads(next(a.s for a in node.attribute if a.name == "envelope"))
    return found
