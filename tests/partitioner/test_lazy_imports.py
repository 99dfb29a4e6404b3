"""sympy takes long to import, so it is imported where somebody computes with symbolic dimensions."""

from __future__ import annotations

import subprocess
import sys


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_server_starts_without_sympy() -> None:
    imported = printed("import sys, serving.process.signals, serving.workers.worker; print(*sys.modules)").split()

    assert "onnx_ir" in imported
    assert "sympy.core" not in imported


def test_symbolic_dimensions_can_be_computed_with() -> None:
    code = """
import engines.build.subprocess_worker, onnx_ir, sys
print("sympy.core" in sys.modules, onnx_ir.SymbolicDim("N") + 1, hasattr(sys.modules["sympy"], "no_such_name"))
"""

    assert printed(code) == "False N + 1 False"


def test_keys_of_caches_need_no_engine_library() -> None:
    code = """
import sys
from engines.backends.build_environment import measuring_environment
from engines.backends.registry import get_backend
from engines.onnxruntime.limits import native_version
measuring_environment(get_backend("openvino"), native_version())
print("openvino" in sys.modules, "onnxruntime" in sys.modules)
"""

    assert printed(code) == "False False"
