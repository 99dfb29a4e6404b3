"""What is measured: ONNX Runtime as the baseline, this project in each precision, and other systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnxruntime

from benchmarks.harness.openers import OPENVINO_PROVIDER, Opener, open_openvino, open_provider
from engines import CompileOptions
from serving.errors import NotBuiltYetError

NATIVE = "native"
"""The baseline: ONNX Runtime alone, in float32."""

PRECISIONS: Mapping[str, CompileOptions] = {
    "fp32": CompileOptions(tune=True),
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


def check_precisions(names: Sequence[str]) -> None:
    """Refuse a precision that can't be measured.

    Raises:
        NotBuiltYetError: Names it.
    """
    for name in names:
        if name not in PRECISIONS:
            raise NotBuiltYetError(f"--precision {name}", f"Use {', '.join(PRECISIONS)}.")
