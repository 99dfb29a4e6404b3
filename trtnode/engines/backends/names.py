"""Names that users choose from: engines, precisions, calibration methods and allowances. Imports no library."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LibraryName: TypeAlias = Literal["tensorrt", "tensorrt-rtx", "openvino", "sparse"]
PrecisionName: TypeAlias = Literal["fp32", "fp16", "bf16", "int8", "fp8", "int4"]
AskedPrecision: TypeAlias = Literal[PrecisionName, "auto"]

NanAnswer: TypeAlias = Literal["native", "engine"]

CalibrationMethod: TypeAlias = Literal["mean", "minmax", "moving-average", "entropy", "percentile"]

TargetName: TypeAlias = Literal["sm75", "sm80", "sm86", "sm89", "sm120", "sm121"]

RewriteName: TypeAlias = Literal[
    "constant-if",
    "branches",
    "hard-swish",
    "hard-sigmoid-operator",
    "layer-norm",
    "layer-norm-operator",
    "layer-norm-unscaled",
    "lp-normalization",
    "reshapes",
]

AUTO = "auto"
"""Asks for the best engine here, or for the fastest precision inside the accuracy budget."""

NATIVE = "native"
"""Asks for no engine at all."""

SPARSE = "sparse"
"""The sparse engine: it skips zeros of weights. ``auto`` measures it against the best dense engine of a processor."""

TYPED_ONNX = "typed-onnx"
"""Writes models in a precision, for other engines. No user can choose it."""

PRUNED_BLOCKS = (1, 4, 8)
"""Successive output channels that are pruned together: the blocks that the kernels of ``sparse`` have."""

LIBRARY_NAMES: tuple[LibraryName, ...] = get_args(LibraryName)
"""Engines of this package, which a user may run without a signature. Those of others need one."""

PRECISION_NAMES: tuple[PrecisionName, ...] = get_args(PrecisionName)

NAN_ANSWERS: tuple[NanAnswer, ...] = get_args(NanAnswer)
"""The one who answers requests with NaN or infinity in their inputs."""

ASKED_PRECISIONS: tuple[AskedPrecision, ...] = get_args(AskedPrecision)

TARGET_NAMES: tuple[TargetName, ...] = get_args(TargetName)
"""GPUs that engines are built for where the library can choose, by compute capability: sm86 is 8.6."""

REWRITE_NAMES: tuple[RewriteName, ...] = get_args(RewriteName)
"""Rules of ``trtnode.partitioner.passes.rewrites.rules``, which can't be imported without its libraries."""

ALL_REWRITES = "all"
"""Stands for all of them where a user leaves them out."""

ONLY_ON_THE_GPU = {
    "sm70": "V100",
    "sm72": "Jetson Xavier",
    "sm87": "Jetson Orin",
    "sm90": "H100, H200",
    "sm100": "B200",
    "sm101": "Thor",
    "sm103": "B300",
    "sm110": "Thor",
}
"""Compute capabilities of GPUs that TensorRT alone builds for, on a machine that has one; and GPUs that have them."""

CALIBRATION_METHODS: tuple[CalibrationMethod, ...] = get_args(CalibrationMethod)

RANGES_SUFFIX = ".json"
"""Of a calibration table; samples are never JSON."""


def rewrite_problem(name: object) -> str | None:
    """Return the reason for which no such rewrite can be left out, with those that can; None if one can."""
    known = name in (*REWRITE_NAMES, ALL_REWRITES)
    return None if known else f"is no rewrite; there are {', '.join(REWRITE_NAMES)}"


def target_problem(name: str) -> str | None:
    """Return the reason for which there is no such target, with those that there are; None if there is one."""
    if name in TARGET_NAMES:
        return None
    known = f"should be one of {', '.join(TARGET_NAMES)}"
    if name in ONLY_ON_THE_GPU:
        gpus = ONLY_ON_THE_GPU[name]
        return f"{known} ({name}, {gpus}, is none of RTX: engine tensorrt builds for it, on a machine that has one)"
    return known
