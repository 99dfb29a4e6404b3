"""Settings: this project in each precision, and other systems."""

from __future__ import annotations

from collections.abc import Mapping

from trtnode.bench.latency.openers import OPENVINO_PROVIDER, Opener, open_openvino, open_provider
from trtnode.engines.backends.names import PRECISION_NAMES
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.engines.precision.options import AccuracyBudget

WITHOUT_BUDGET = AccuracyBudget(min_cosine=-1)

PRECISIONS: Mapping[str, CompileOptions] = {
    "fp32": CompileOptions(),
    **{name: CompileOptions(precision=name, budget=WITHOUT_BUDGET) for name in PRECISION_NAMES if name != "fp32"},
    "auto": CompileOptions(precision="auto"),
}
"""Options of the compilation for each precision. Only ``auto`` keeps to a budget of accuracy: random weights have thin
margins, so the other precisions are measured whatever their accuracy."""

PROVIDER = "onnxruntime-openvino"

PEERS: Mapping[str, Opener] = {"openvino": open_openvino, PROVIDER: open_provider}
"""Other systems that run a whole model, by the name of their setting."""


def installed_peers() -> list[str]:
    """Return the keys of ``PEERS`` that can run here; the usual onnxruntime lacks the OpenVINO provider."""
    has_provider = OPENVINO_PROVIDER in onnxruntime.get_available_providers()
    return [name for name in PEERS if name != PROVIDER or has_provider]
