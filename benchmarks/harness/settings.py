"""What is measured: ONNX Runtime as the baseline, this project in each precision, and other systems."""

from __future__ import annotations

from collections.abc import Mapping

import onnxruntime

from benchmarks.harness.openers import OPENVINO_PROVIDER, Opener, open_openvino, open_provider
from engines import CompileOptions
from engines.budget import AccuracyBudget
from engines.options import PrecisionOptions

NATIVE = "native"
"""The baseline: ONNX Runtime alone, in float32."""

WITHOUT_BUDGET = AccuracyBudget(min_cosine=None)

PRECISIONS: Mapping[str, CompileOptions] = {
    "fp32": CompileOptions(tune=True),
    **{
        name: CompileOptions(tune=True, precision=PrecisionOptions(asked=name, budget=WITHOUT_BUDGET))
        for name in ("fp16", "bf16", "int8")
    },
    "auto": CompileOptions(tune=True, precision=PrecisionOptions(asked="auto")),
}
"""How the model is compiled for each precision that can be measured. Only ``auto`` is to keep to a budget of accuracy:
random weights have thin margins, so any other precision is measured whatever it costs in accuracy."""

PROVIDER = "onnxruntime-openvino"

PEERS: Mapping[str, Opener] = {"openvino": open_openvino, PROVIDER: open_provider}
"""Other systems that take a whole model, by the name of their setting."""


def installed_peers() -> list[str]:
    """Keys of ``PEERS`` that can be measured here; the usual onnxruntime comes without the OpenVINO provider."""
    has_provider = OPENVINO_PROVIDER in onnxruntime.get_available_providers()
    return [name for name in PEERS if name != PROVIDER or has_provider]
