"""Instruction sets of the processor that the choice of a precision and of rewrites depends on."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping

CPUINFO = pathlib.Path("/proc/cpuinfo")

INT8_FLAGS = frozenset({"amx_int8", "avx512_vnni", "avx_vnni", "asimddp", "i8mm"})
"""Dot products of 8-bit integers: VNNI and AMX of x86, dot product and matrix multiplication of Arm."""

BF16_FLAGS = frozenset({"amx_bf16", "avx512_bf16", "bf16"})

SIGNS_OF_X86 = frozenset({"fpu", "sse2"})

VECTOR_FLAGS = ("avx", "amx", "sse4", "ssse", "fma", "f16c", "asimd", "bf16", "i8mm", "sve", "sme", "fphp")
"""Beginnings of the instruction sets that kernels are chosen by."""

LIMIT_VARIABLE = "ONEDNN_MAX_CPU_ISA"
"""Environment variable by which oneDNN, and so OpenVINO, leaves newer instruction sets unused."""

VNNI_256, VNNI_512 = frozenset({"avx_vnni"}), frozenset({"avx_vnni", "avx512_vnni"})
LEFT_BY_LIMIT: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("SSE41", "AVX", "AVX2", "AVX512_CORE"), frozenset()),
    **dict.fromkeys(("AVX2_VNNI", "AVX2_VNNI_2"), VNNI_256),
    "AVX512_CORE_VNNI": VNNI_512,
    **dict.fromkeys(("AVX512_CORE_BF16", "AVX512_CORE_FP16"), VNNI_512 | {"avx512_bf16"}),
}
"""Instruction sets of ``INT8_FLAGS`` and ``BF16_FLAGS`` that oneDNN uses at most, by value of its variable."""


def leaves_bfloat16() -> bool:
    """Return whether oneDNN is told to leave bfloat16 unused. OpenVINO then still names it as its precision."""
    left = LEFT_BY_LIMIT.get(os.environ.get(LIMIT_VARIABLE, "").upper())
    return left is not None and left.isdisjoint(BF16_FLAGS)


def usable_flags(cpuinfo: pathlib.Path = CPUINFO) -> frozenset[str] | None:
    """Return the instruction sets of this processor that oneDNN isn't told to leave unused; None if unknown."""
    flags, left = processor_flags(cpuinfo), LEFT_BY_LIMIT.get(os.environ.get(LIMIT_VARIABLE, "").upper())
    return flags if flags is None or left is None else flags - ((INT8_FLAGS | BF16_FLAGS) - left)


def kernels_chosen_by(cpuinfo: pathlib.Path = CPUINFO) -> str | None:
    """Return what of this processor, and of the user's settings, decides about oneDNN's kernels; None if unknown."""
    flags = processor_flags(cpuinfo)
    if flags is None:
        return None
    return " ".join(
        [*sorted(flag for flag in flags if flag.startswith(VECTOR_FLAGS)), os.environ.get(LIMIT_VARIABLE, "")]
    )


@functools.cache
def processor_flags(cpuinfo: pathlib.Path = CPUINFO) -> frozenset[str] | None:
    """Read the instruction sets of the first processor, by Linux's names; None where they are not listed."""
    return next((frozenset(text.split()) for key, text in _entries(cpuinfo) if key in ("flags", "Features")), None)


@functools.cache
def processor_name(cpuinfo: pathlib.Path = CPUINFO) -> str:
    """Read the name of the first processor; empty where it has none, as on Arm."""
    return next((text for key, text in _entries(cpuinfo) if key == "model name"), "")


def _entries(cpuinfo: pathlib.Path) -> list[tuple[str, str]]:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [(key.strip(), text.strip()) for key, _, text in (line.partition(":") for line in lines)]


def has_short_sums(flags: frozenset[str] | None) -> bool:
    """Return whether large 8-bit weights saturate: x86 without VNNI or AMX adds pairs of byte products in 16 bits."""
    return flags is not None and flags >= SIGNS_OF_X86 and flags.isdisjoint(INT8_FLAGS)


def precision_warnings(precision: str, effective: str, flags: frozenset[str] | None) -> list[str]:
    """Return warnings to a user who asks for a precision that gains little on a processor, or that it lacks.

    Args:
        precision: The one that is asked for.
        effective: The one that engines compute in.
        flags: Of the processor, from ``usable_flags``.
    """
    if (precision, effective) == ("bf16", "fp16"):
        return [
            "Engines compute in fp16 here, not in bf16: its largest number is 65,504 in place of 3.4e38, and larger "
            "ones become infinite."
        ]
    if flags is None:
        return []
    if precision == "int8" and flags.isdisjoint(INT8_FLAGS):
        narrow = "; weights get 7 to 8 bits, by what fits its 16-bit sums" if has_short_sums(flags) else ""
        return [
            "This processor has no 8-bit dot products (VNNI or AMX), so int8 gains less than it does with them"
            f"{narrow}."
        ]
    if precision == "bf16" and flags.isdisjoint(BF16_FLAGS):
        return ["This processor has no bfloat16 instructions, so bf16 will not be faster than fp32 here."]
    return []
