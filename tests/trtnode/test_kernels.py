"""A sample of the operators that ONNX Runtime has kernels for; ``make conformance`` has them all."""

from __future__ import annotations

import pathlib

import pytest

from backend_suite import sample
from kernel_models import KernelCase, explain_and_run, kernel_cases, run_in_half

EVERY = 18

CASES = {case.name: case for case in kernel_cases()}
SAMPLE = [pytest.param(CASES[name], id=name) for name in sample(CASES, EVERY)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", SAMPLE)
def test_an_operator_without_declared_shapes_is_explained_and_runs(case: KernelCase, tmp_path: pathlib.Path) -> None:
    explain_and_run(case, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("case", SAMPLE[::3])
def test_an_operator_runs_in_a_lower_precision_or_stays_float32(case: KernelCase, precision: str) -> None:
    run_in_half(case, precision)
