"""Builds what test_pycuda.py needs: ``python tests/simulators/pycuda_stand_in/build.py FOLDER [--seconds N]``.

FOLDER gets the real pycuda, compiled against NVIDIA's headers from the wheel ``nvidia-cuda-runtime``, and
``libcuda.so.1``, which stands for the driver. No GPU and no CUDA toolkit is needed; a C and a C++ compiler are. pycuda
takes minutes to compile, so its wheel is kept in the user's cache for the next folder. Where it can't be built, or not
within N seconds, a sentence says so, and the tests skip.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

PYCUDA = "pycuda==2026.1"
HEADERS = "nvidia-cuda-runtime>=13,<14"
HERE = pathlib.Path(__file__).parent
SOURCE = HERE / "driver.c"
DRIVER = "libcuda.so.1"
DONE = "complete"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "trtnode-tests"

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

SETTINGS = """
CUDA_ROOT = {root!r}
CUDA_INC_DIR = [{include!r}]
CUDADRV_LIB_DIR = [{libraries!r}]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O0", "-w"]

import concurrent.futures, os
from distutils.unixccompiler import UnixCCompiler

def compile_in_threads(self, sources, output_dir=None, macros=None, include_dirs=None, debug=0, extra_preargs=None,
                       extra_postargs=None, depends=None):
    macros, objects, extra, flags, build = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs)
    base = self._get_cc_args(flags, debug, extra_preargs)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda o: self._compile(o, *build[o], base, extra, flags), objects))
    return objects

UnixCCompiler.compile = compile_in_threads
"""
"""pycuda's setup reads these, and runs them: its sources are compiled one after the other otherwise."""


class NotBuiltError(Exception):
    """Something is missing, or takes too long."""


def main() -> int:
    """Build what is not there already; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, help="the most that compiling pycuda may take")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    stamp = fingerprint(SOURCE.read_bytes())
    if (folder / DONE).exists() and (folder / DONE).read_text() == stamp:
        return 0
    try:
        build(folder, arguments.seconds)
    except NotBuiltError as error:
        shutil.rmtree(folder, ignore_errors=True)  # the tests skip where there is no library in place of the driver
        sys.stderr.write(f"pycuda over a stand-in driver is not here: {error}\n")
        return 0
    (folder / DONE).write_text(stamp)
    return 0


def build(folder: pathlib.Path, seconds: float | None) -> None:
    """Fill a folder.

    Raises:
        NotBuiltError: It can't be done, or not in time.
    """
    missing = [tool for tool in ("gcc", "g++", "nm") if shutil.which(tool) is None]
    if missing:
        raise NotBuiltError(f"{', '.join(missing)} is missing. Install a C++ compiler.")
    shutil.rmtree(folder, ignore_errors=True)
    include = add_headers(folder)
    compile_library(folder, include)
    (folder / "libcuda.so").symlink_to(DRIVER)
    site = folder / "site"
    pip("install", "--no-deps", "--target", str(site), str(pycuda_wheel(folder, include, seconds)))
    (module,) = (site / "pycuda").glob("_driver*.so")
    add_rest(folder, include, module)


def fingerprint(*parts: bytes) -> str:
    """Return a hash of all that a build depends on."""
    return hashlib.sha256(repr((PYCUDA, HEADERS, sys.version, SETTINGS, parts)).encode()).hexdigest()[:16]


def add_headers(folder: pathlib.Path) -> pathlib.Path:
    """Unpack NVIDIA's headers; return where they are."""
    pip("install", "--no-deps", "--target", str(folder / "headers"), HEADERS)
    (found,) = (folder / "headers").rglob("cuda.h")
    (found.parent / "cudaProfiler.h").write_text(PROFILER_HEADER, encoding="utf-8")
    return found.parent


def pycuda_wheel(folder: pathlib.Path, include: pathlib.Path, seconds: float | None) -> pathlib.Path:
    """pycuda's wheel: from the cache, or compiled now."""
    kept = CACHE / fingerprint()
    if not any(kept.glob("*.whl")):
        with tempfile.TemporaryDirectory() as home:
            text = SETTINGS.format(root=str(include.parent), include=str(include), libraries=str(folder))
            pathlib.Path(home, ".aksetup-defaults.py").write_text(text, encoding="utf-8")
            source = ("--no-binary", "pycuda", "--no-cache-dir", "--wheel-dir", home, PYCUDA)
            pip("wheel", "--no-deps", *source, home=home, seconds=seconds)
            kept.mkdir(parents=True, exist_ok=True)
            for wheel in pathlib.Path(home).glob("*.whl"):
                shutil.move(wheel, kept)
    return next(kept.glob("*.whl"))


def add_rest(folder: pathlib.Path, include: pathlib.Path, module: pathlib.Path) -> None:
    """Give the library that stands for the driver what else pycuda asks for: it says "not supported"."""
    rest = folder / "rest.c"
    absent = symbols(module, "--undefined-only") - symbols(folder / DRIVER, "--defined-only")
    names = sorted(name for name in absent if name.startswith("cu") and name[2:3].isupper())
    rest.write_text("".join(f"int {name}(void) {{ return 801; }}\n" for name in names), encoding="utf-8")
    compile_library(folder, include, rest)


def compile_library(folder: pathlib.Path, include: pathlib.Path, *more: pathlib.Path) -> None:
    """Compile ``libcuda.so.1`` into a folder."""
    flags = ["-shared", "-fPIC", "-O2", "-pthread", "-Wall", "-Werror", f"-Wl,-soname,{DRIVER}"]
    subprocess.run(["gcc", *flags, "-isystem", include, "-o", folder / DRIVER, SOURCE, *more], check=True)


def symbols(library: pathlib.Path, which: str) -> set[str]:
    """Names that a library defines or asks for."""
    listed = subprocess.run(["nm", "-D", which, str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in listed.stdout.splitlines()}


def pip(*arguments: str, home: str | None = None, seconds: float | None = None) -> None:
    """Run pip, with another home folder if one is given; the compilers that it starts end with it.

    Raises:
        NotBuiltError: It fails, or takes longer than it may.
    """
    command: Sequence[str] = [sys.executable, "-m", "pip", "--quiet", *arguments]
    environment = {**os.environ, "HOME": home} if home else None
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            code = process.wait(seconds)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotBuiltError(f"it takes longer than {seconds:g} s to compile.") from error
            raise
    if code:
        raise NotBuiltError(f"pip {arguments[0]} {arguments[-1]} fails, see above.")


if __name__ == "__main__":
    sys.exit(main())
