"""Compiles the sparse kernels when the package is built or installed, where there is a C compiler.

Without one, the package has no sparse kernels and says so; everything else works.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    "convolution.c",
    "depthwise.c",
    "matrix.c",
    "operators.c",
    "panel.c",
    "product.c",
    "recurrent.c",
    "tensors.c",
)

FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,nodelete", "-Wall", "-Wextra")


class KernelBuildHook(BuildHookInterface[Any]):
    """Puts ``engines/sparse/kernels.so`` into the wheel, or beside its sources for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  (the hook's signature)
        """Compile; a compiler that fails is told on stderr, and the package is built without kernels."""
        folder = pathlib.Path(self.root, "engines", "sparse")
        library = folder / "kernels.so"
        if not _is_current(library) and not _compile(library):
            library.unlink(missing_ok=True)
            return
        build_data["artifacts"].append("engines/sparse/kernels.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _is_current(library: pathlib.Path) -> bool:
    if not library.is_file() or os.environ.get("TRTNODE_NO_COMPILER"):
        return False
    changed = max(path.stat().st_mtime for path in (library.parent / "kernels").iterdir())
    return library.stat().st_mtime > changed


def _compile(library: pathlib.Path) -> bool:
    """Write the library, in one step: a process may have the one of before in use."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if compiler is None or os.environ.get("TRTNODE_NO_COMPILER"):
        return False
    sources = [str(library.parent / "kernels" / name) for name in SOURCES]
    made = library.with_suffix(f".{os.getpid()}.so")
    done = subprocess.run([compiler, *FLAGS, *sources, "-o", str(made), "-lpthread", "-lm"], check=False)  # noqa: S603
    if done.returncode:
        print("trtnode: the sparse kernels do not compile here, so engine sparse is left out", file=sys.stderr)
        return False
    made.replace(library)
    return True
