"""An envelope of TensorRT, without an engine."""

from __future__ import annotations

from trtnode.engines.artifact.envelope import Device, Envelope, current_platform

PLAN = Envelope(
    backend="tensorrt",
    backend_version="11.4.0.106",
    platform=current_platform(),
    device=Device(features="8.9", name="a GPU"),
    precision_asked="fp32",
    precision_effective="fp32",
    options={"STRONGLY_TYPED": "1"},
    inputs=(),
    outputs=(),
    engine_sha256="0" * 64,
    segment_sha256="0" * 64,
    builder_version="0.1.0",
)
