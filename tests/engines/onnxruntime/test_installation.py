"""Parts of an installation that overwrite each other, and which GPU the driver names."""

from __future__ import annotations

import importlib.metadata
import logging
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from trtnode.engines.cuda import devices
from trtnode.engines.cuda.devices import Gpu, find_gpu
from trtnode.engines.onnxruntime import installation
from trtnode.engines.onnxruntime.installation import overlay_problem, warn_of_overlay
from trtnode.engines.onnxruntime.session import NativeSession

DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return FAILURE; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "NVIDIA Stand-in", size); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 8 : 9; return 0; }
"""


@pytest.fixture
def both_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    versions = {"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.30.0"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    warn_of_overlay.cache_clear()
    yield
    warn_of_overlay.cache_clear()


def test_one_distribution_of_onnxruntime_is_fine() -> None:
    assert overlay_problem() is None


def test_two_distributions_are_told_with_the_command_that_mends_it(both_installed: None) -> None:
    assert overlay_problem() == (
        "onnxruntime 1.31.1 and onnxruntime-gpu 1.30.0 are both installed and overwrite each other's files. "
        "Keep one: pip uninstall --yes onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu"
    )


def test_the_first_model_that_is_loaded_warns_of_it_once(
    both_installed: None, digits: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        NativeSession(digits)
        NativeSession(digits)

    assert [record.name for record in caplog.records] == [installation.__name__]


def driver(folder: pathlib.Path, failure: int) -> str:
    source, library = folder / "driver.c", folder / "libcuda.so"
    source.write_text(DRIVER.replace("FAILURE", str(failure)), encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler for a stand-in driver")
@pytest.mark.parametrize(
    ("failure", "found"),
    [
        pytest.param(0, Gpu(name="NVIDIA Stand-in", compute_capability="8.9"), id="gpu"),
        pytest.param(101, None, id="driver-without-a-gpu"),
    ],
)
def test_the_driver_names_the_gpu(
    failure: int, found: Gpu | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "DRIVER", driver(tmp_path, failure))

    assert find_gpu() == found


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "DRIVER", "libcuda-of-nobody.so.1")

    assert find_gpu() is None
