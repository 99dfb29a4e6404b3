"""A sample of the operators that ONNX Runtime has kernels for; ``make conformance`` has them all."""

from __future__ import annotations

import pathlib

import pytest

from backend_suite import sample
from kernel_models import KernelCase, explain_and_run, kernel_cases

EVERY = 16

CASES = {case.name: case for case in kernel_cases()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [pytest.param(CASES[name], id=name) for name in sample(CASES, EVERY)])
def test_an_operator_without_declared_shapes_is_explained_and_runs(case: KernelCase, tmp_path: pathlib.Path) -> None:
    explain_and_run(case, tmp_path)
