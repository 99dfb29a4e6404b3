"""Builds what test_pycuda.py needs, once: ``python tests/simulators/pycuda_stand_in/build.py FOLDER``.

FOLDER gets the real pycuda, compiled against NVIDIA's headers from the wheel ``nvidia-cuda-runtime``, and
``libcuda.so.1``, which stands for the driver. No GPU and no CUDA toolkit is needed; a C and a C++ compiler are.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

PYCUDA = "pycuda==2026.1"
HEADERS = "nvidia-cuda-runtime>=13,<14"
HERE = pathlib.Path(__file__).parent
DRIVER = "libcuda.so.1"
DONE = "complete"

PROFILER_HEADER = """
#include <cuda.h>
typedef enum { CU_OUT_KEY_VALUE_PAIR, CU_OUT_CSV } CUoutput_mode;
extern "C" {
CUresult cuProfilerInitialize(const char *config, const char *output, CUoutput_mode mode);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);
}
"""
"""The wheel lacks cudaProfiler.h, of which pycuda uses no more than this."""


def main() -> int:
    """Build unless it is there already; return the exit code."""
    folder = pathlib.Path(sys.argv[1]).resolve()
    if (folder / DONE).exists():
        return 0
    missing = [tool for tool in ("gcc", "g++", "nm") if shutil.which(tool) is None]
    if missing:
        sys.stderr.write(f"pycuda can't be built: {', '.join(missing)} is missing. Install a C++ compiler.\n")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    include = add_headers(folder)
    module = build_pycuda(folder, include)
    build_driver(folder, include, module)
    (folder / DONE).touch()
    return 0


def add_headers(folder: pathlib.Path) -> pathlib.Path:
    """Unpack NVIDIA's headers; return where they are."""
    pip("install", "--no-deps", "--target", str(folder / "headers"), HEADERS)
    (found,) = (folder / "headers").rglob("cuda.h")
    (found.parent / "cudaProfiler.h").write_text(PROFILER_HEADER, encoding="utf-8")
    return found.parent


def build_pycuda(folder: pathlib.Path, include: pathlib.Path) -> pathlib.Path:
    """Compile pycuda into ``site``; return its compiled module."""
    home = folder / "home"
    home.mkdir()
    (home / ".aksetup-defaults.py").write_text(
        f"CUDA_ROOT = {str(include.parent)!r}\nCUDA_INC_DIR = [{str(include)!r}]\n"
        f"CUDADRV_LIB_DIR = [{str(folder)!r}]\nCUDA_ENABLE_CURAND = False\n",
        encoding="utf-8",
    )
    compile_library(folder, HERE / "driver.c", include)
    (folder / "libcuda.so").symlink_to(DRIVER)
    site = folder / "site"
    pip("install", "--no-deps", "--no-binary", "pycuda", "--no-cache-dir", "--target", str(site), PYCUDA, home=home)
    (module,) = (site / "pycuda").glob("_driver*.so")
    return module


def build_driver(folder: pathlib.Path, include: pathlib.Path, module: pathlib.Path) -> None:
    """Compile the library that stands for the driver. What else pycuda asks for says "not supported"."""
    source, rest = HERE / "driver.c", folder / "rest.c"
    compile_library(folder, source, include)
    absent = symbols(module, "--undefined-only") - symbols(folder / DRIVER, "--defined-only")
    names = sorted(name for name in absent if name.startswith("cu") and name[2:3].isupper())
    rest.write_text("".join(f"int {name}(void) {{ return 801; }}\n" for name in names), encoding="utf-8")
    compile_library(folder, source, include, rest)


def compile_library(
    folder: pathlib.Path, source: pathlib.Path, include: pathlib.Path, rest: pathlib.Path | None = None
) -> None:
    """Compile ``libcuda.so.1`` into a folder."""
    flags = ["-shared", "-fPIC", "-O2", "-pthread", "-Wall", "-Werror", f"-Wl,-soname,{DRIVER}"]
    sources = [str(path) for path in (source, rest) if path]
    subprocess.run(["gcc", *flags, "-isystem", str(include), "-o", str(folder / DRIVER), *sources], check=True)


def symbols(library: pathlib.Path, which: str) -> set[str]:
    """Names that a library defines or asks for."""
    listed = subprocess.run(["nm", "-D", which, str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in listed.stdout.splitlines()}


def pip(*arguments: str, home: pathlib.Path | None = None) -> None:
    """Run pip, with another home folder if one is given."""
    environment = {**os.environ, "HOME": str(home)} if home else None
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
