"""The instruction sets of processors, and the warnings about precisions that follow from them."""

from __future__ import annotations

import pathlib

import pytest

from trtnode.engines.backends.cpu_features import (
    LIMIT_VARIABLE,
    has_short_sums,
    kernels_chosen_by,
    precision_warnings,
    processor_flags,
    processor_name,
    usable_flags,
)

OLD = "processor\t: 0\nflags\t\t: fpu sse2 avx2 avx512f avx512bw\n"
NEW = "flags\t\t: fpu sse2 avx512f avx512_vnni avx512_bf16\n"
ARM = "Features\t: fp asimd asimddp bf16\n"
OLD_ARM = "Features\t: fp asimd\n"


@pytest.mark.parametrize(
    ("cpuinfo", "reduced", "warned"),
    [
        pytest.param(OLD, True, {"int8", "bf16"}, id="avx512-without-vnni"),
        pytest.param(NEW, False, set(), id="vnni-and-bf16"),
        pytest.param(ARM, False, set(), id="arm-with-dot-product"),
        pytest.param(OLD_ARM, False, {"int8", "bf16"}, id="arm-without"),
        pytest.param("", False, set(), id="unknown"),
    ],
)
def test_instruction_sets_decide_about_weights_and_warnings(
    cpuinfo: str, reduced: bool, warned: set[str], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)

    flags = processor_flags(path)

    assert has_short_sums(flags) == reduced
    assert {p for p in ("fp32", "fp16", "bf16", "int8") if precision_warnings(p, p, flags)} == warned


def test_the_warning_about_int8_says_that_weights_get_seven_bits(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cpuinfo").write_text(OLD)

    (warning,) = precision_warnings("int8", "int8", processor_flags(tmp_path / "cpuinfo"))

    assert warning.endswith(
        "int8 gains less than it does with them; weights get 7 to 8 bits, by what fits its 16-bit sums."
    )


def test_the_range_of_fp16_in_place_of_bf16_is_told() -> None:
    arm = frozenset({"fp", "asimd", "fphp", "asimdhp", "bf16"})

    (warning,) = precision_warnings("bf16", "fp16", arm)

    assert warning.startswith("Engines compute in fp16 here, not in bf16: its largest number is 65,504")
    assert precision_warnings("fp16", "fp16", arm) == []


def test_a_system_that_tells_nothing_gets_no_warning(tmp_path: pathlib.Path) -> None:
    assert processor_flags(tmp_path / "none") is None
    assert precision_warnings("int8", "int8", None) == []


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        pytest.param("", {"avx512_vnni", "avx512_bf16"}, id="no-limit"),
        pytest.param("avx2", set(), id="lower-case"),
        pytest.param("AVX512_CORE", set(), id="avx512-alone"),
        pytest.param("AVX512_CORE_VNNI", {"avx512_vnni"}, id="dot-products-without-bfloat16"),
        pytest.param("NEWEST", {"avx512_vnni", "avx512_bf16"}, id="unknown-value"),
    ],
)
def test_what_onednn_leaves_unused_does_not_count(
    limit: str, left: set[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(NEW)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)

    assert usable_flags(tmp_path / "cpuinfo") == {"fpu", "sse2", "avx512f", *left}


def test_kernels_depend_on_vector_instructions_and_the_limit_alone(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_text(OLD)
    (tmp_path / "noisy").write_text("model name\t: Some CPU @ 2 GHz\n" + OLD.replace("fpu", "fpu hypervisor md_clear"))
    (tmp_path / "new").write_text(NEW)
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    old, noisy, new = (kernels_chosen_by(tmp_path / name) for name in ("old", "noisy", "new"))

    assert old == noisy != new
    assert processor_name(tmp_path / "noisy") == "Some CPU @ 2 GHz"
    assert kernels_chosen_by(tmp_path / "missing") is None

    monkeypatch.setenv(LIMIT_VARIABLE, "AVX2")

    assert kernels_chosen_by(tmp_path / "old") != old
