"""Each operator and version that ONNX Runtime has a kernel for is explained and runs; ordinary tests have a sample."""

from __future__ import annotations

import pathlib

import pytest

from kernel_models import KernelCase, explain_and_run, kernel_cases


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in kernel_cases()])
def test_an_operator_without_declared_shapes_is_explained_and_runs(case: KernelCase, tmp_path: pathlib.Path) -> None:
    explain_and_run(case, tmp_path)
