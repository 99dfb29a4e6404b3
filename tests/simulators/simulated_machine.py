"""Puts a simulated GPU with an engine library and pycuda into this process and into the processes that it starts.

The project has no switch for this: in this process the modules take the place of the real ones where they were
imported; a child process finds packages of these names on its path, and a small library in place of the driver, which
tells that there is a GPU.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest

from simulated_process import modules
from simulated_tensorrt import VARIABLE, Simulation
from simulated_tensorrt.real_parser import real_library
from trtnode.engines.backends import registry
from trtnode.engines.cuda import context, devices
from trtnode.engines.cuda.devices import DRIVER, Gpu
from trtnode.engines.tensorrt import backend

HERE = pathlib.Path(__file__).parent
LIBRARIES = HERE / "libraries"

DRIVER_SOURCE = """
int cuInit(unsigned flags) {{ return 0; }}
int cuDeviceGet(int *device, int ordinal) {{ *device = 0; return ordinal ? 101 : 0; }}
int cuDeviceGetName(char *name, int length, int device) {{
    const char *source = "{name}";
    while (length-- > 1 && *source) *name++ = *source++;
    *name = 0;
    return 0;
}}
int cuDeviceGetAttribute(int *value, int attribute, int device) {{
    *value = attribute == 75 ? {major} : attribute == 76 ? {minor} : 0;
    return 0;
}}
"""


def install(monkeypatch: pytest.MonkeyPatch, simulation: Simulation) -> dict[str, Any]:
    """Put a simulation into this process, until the test ends.

    Returns:
        The modules.
    """
    found = modules(simulation)
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    major, minor = simulation.gpu.compute_capability
    gpu = Gpu(name=simulation.gpu.name, compute_capability=f"{major}.{minor}")
    monkeypatch.setattr(context, "driver", found["pycuda.driver"])
    for module in (backend, devices):
        monkeypatch.setattr(module, "find_gpu", lambda: gpu)
    forget()
    return found


def forget() -> None:
    """Let backends of another installation go. Loggers stay: a real library calls its first one for ever."""
    registry.get_backend.cache_clear()


def install_in_children(monkeypatch: pytest.MonkeyPatch, simulation: Simulation, folder: pathlib.Path) -> None:
    """Put a simulation into the worker processes that are started from now on.

    Args:
        monkeypatch: Undoes it.
        simulation: Its faults are those of this moment.
        folder: For the small library that stands for the driver; it is compiled.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler for a library in place of the driver")
    real_library()  # workers need it: without it, the test is skipped
    major, minor = simulation.gpu.compute_capability
    source = folder / "driver.c"
    source.write_text(DRIVER_SOURCE.format(name=simulation.gpu.name, major=major, minor=minor), encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / DRIVER, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv(VARIABLE, simulation.to_json())
    monkeypatch.syspath_prepend(LIBRARIES)
    if simulation.is_rtx:
        monkeypatch.syspath_prepend(LIBRARIES / "rtx")
