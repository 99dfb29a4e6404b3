"""Names that users choose from are written once, where no library is needed to read them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trtnode.engines.backends.names import (
    ASKED_PRECISIONS,
    CALIBRATION_METHODS,
    LIBRARY_NAMES,
    PRECISION_NAMES,
)
from trtnode.engines.backends.plugins import engine_names
from trtnode.engines.precision.rules import PRECISIONS
from trtnode.engines.quantization.range_estimators import find_estimator


def test_reading_them_imports_no_library() -> None:
    code = "import sys, trtnode.serving.cli.arguments, trtnode.engines.backends.names; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert "trtnode.engines.backends.names" in loaded
    assert {"numpy", "onnx", "onnx_ir", "onnxruntime", "openvino", "pydantic", "tensorrt"}.isdisjoint(loaded)


def test_every_choice_is_one_that_the_program_knows() -> None:
    assert {"auto", *LIBRARY_NAMES, "native"} == set(engine_names())
    assert set(PRECISION_NAMES) == set(PRECISIONS)
    assert (*PRECISION_NAMES, "auto") == ASKED_PRECISIONS


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_every_calibration_method_is_built_in(method: str) -> None:
    assert find_estimator(method, percentile=99.99) is not None
