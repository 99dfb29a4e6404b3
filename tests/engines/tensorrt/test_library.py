"""A library with TensorRT's API is a value: another one is a second value and an entry point."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from offered_engines import offer
from simulated_tensorrt import Simulation
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.registry import build_options_of, get_backend
from trtnode.engines.cuda.devices import Gpu
from trtnode.engines.tensorrt.backend import TensorRtBackend
from trtnode.engines.tensorrt.library import TENSORRT, Installation

GPU = Gpu(name="a", compute_capability="9.0")

SECOND = dataclasses.replace(
    TENSORRT,
    engine="second",
    title="Second",
    module="second_library",
    lacks=frozenset({"sparse", "workspace_mb"}),
    runtime_settings={"RUNTIME_CACHE": "1"},
    version_parts=2,
)


@pytest.fixture
def second(simulate: Callable[..., Simulation], monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module of another library, which the registry knows."""
    simulate(version="11.1.0.1")
    module: types.ModuleType = sys.modules["tensorrt"]
    monkeypatch.setitem(sys.modules, SECOND.module, module)
    offer(monkeypatch, "second", functools.partial(TensorRtBackend, SECOND))
    return module


@pytest.mark.parametrize(
    ("version", "load_problem", "gpu", "said"),
    [
        pytest.param(None, "", GPU, "not installed here", id="not-installed"),
        pytest.param(None, "libnvinfer.so.11: not found", None, "libnvinfer.so.11: not found", id="no-libnvinfer"),
        pytest.param("10.0.1", "", GPU, "10.3 or newer", id="too-old"),
        pytest.param("11.4.0.106", "", None, "no NVIDIA GPU", id="no-gpu"),
    ],
)
def test_what_is_missing_is_told_with_the_way_to_mend_it(
    version: str | None, load_problem: str, gpu: Gpu | None, said: str, tensorrt: Callable[..., Any]
) -> None:
    installation = Installation(module=tensorrt(version=version) if version else None, load_problem=load_problem)

    sentence = TENSORRT.unavailable_reason(installation, gpu)

    assert said in str(sentence)
    assert "pip install" in str(sentence) or "nvidia-smi" in str(sentence)


def test_nothing_is_missing_with_a_simulated_library_and_a_gpu(tensorrt: Callable[..., Any]) -> None:
    assert TENSORRT.unavailable_reason(Installation(module=tensorrt()), GPU) is None


def test_module_that_can_not_be_loaded_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == TENSORRT.module:
                raise OSError("libnvinfer.so.11: not found")

    monkeypatch.delitem(sys.modules, TENSORRT.module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])

    assert TENSORRT.find() == Installation(module=None, load_problem="libnvinfer.so.11: not found")


def test_second_library_is_a_value_and_a_line_of_the_registry(second: types.ModuleType) -> None:
    backend = get_backend("second")

    assert (backend.name, backend.unavailable_reason(), backend.version()) == ("second", None, "11.1")
    assert backend.device().name == "simulated GPU"


def test_second_library_is_never_told_what_it_lacks(second: types.ModuleType) -> None:
    asked = BuildOptions(tensorrt=TensorRtOptions(sparse=True, workspace_mb=64, optimization_level=5))

    properties = get_backend("second").build_properties(asked)

    assert build_options_of("tensorrt") - build_options_of("second") == {"sparse", "workspace_mb"}
    assert properties["OPTIMIZATION_LEVEL"] == "5"
    assert not {"SPARSE_WEIGHTS", "WORKSPACE"} & properties.keys()
    assert properties["RUNTIME_CACHE"] == "1"
