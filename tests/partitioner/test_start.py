"""sympy takes more time to import than a command has: our programs leave it out, and nobody notices."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples/digits/digits.onnx"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_a_compilation_and_its_children_import_no_sympy(tmp_path: pathlib.Path) -> None:
    done = run("-X", "importtime", "-m", "trtnode", "compile", str(EXAMPLE), "-o", str(tmp_path / "compiled.onnx"))

    assert "onnx_ir._core" in done.stderr
    assert "sympy.core" not in done.stderr


@pytest.mark.parametrize(
    "use",
    [
        "import onnx_ir; assert (onnx_ir.SymbolicDim('N') + 1).evaluate({'N': 3}) == 4",
        "from sympy import Symbol; import onnx_ir; assert Symbol('x') + 0 == Symbol('x')",
        "import sympy.core.symbol, sympy; assert sympy.core.symbol.Symbol is sympy.Symbol",
    ],
)
def test_whoever_uses_sympy_after_all_gets_it(use: str) -> None:
    run("-c", f"from trtnode.partitioner.start import import_onnx_ir; import_onnx_ir(); {use}")


def test_a_users_process_keeps_its_own_sympy() -> None:
    run(
        "-c",
        textwrap.dedent("""
            import sys, trtnode
            trtnode.compile
            assert sys.modules["sympy"].Symbol.__module__ == "sympy.core.symbol"
            assert type(sys.modules["sympy"]).__name__ == "module"
        """),
    )
