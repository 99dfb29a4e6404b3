"""Each operator and version that ONNX Runtime has a kernel for is explained, runs, and runs in lower precisions.

The ordinary tests have a sample.
"""

from __future__ import annotations

import pathlib

import pytest

from kernel_models import KernelCase, explain_and_run, kernel_cases, run_in_half

CASES = [pytest.param(case, id=case.name) for case in kernel_cases()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_an_operator_without_declared_shapes_is_explained_and_runs(case: KernelCase, tmp_path: pathlib.Path) -> None:
    explain_and_run(case, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_an_operator_runs_in_a_lower_precision_or_stays_float32(case: KernelCase, precision: str) -> None:
    run_in_half(case, precision)
