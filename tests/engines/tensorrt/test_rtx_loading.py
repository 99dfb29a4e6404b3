"""Engines of TensorRT for RTX run on GPUs of their targets alone. The GPUs are simulated, and nothing runs on them."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from rtx_judges import asked
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.registry import get_backend, resolve_engine
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.opening import open_model
from trtnode.engines.cuda import devices
from trtnode.engines.cuda.devices import Gpu
from trtnode.engines.runtime import engine_loading
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tensorrt import backend as backend_module
from trtnode.engines.tensorrt.backend import TensorRtBackend
from trtnode.engines.tensorrt.library import TENSORRT_RTX
from workshop import Workshop, prepare_and_open

rtx: Any = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

GRAPH = "g (float[2,4] x) => (float[2,4] y) { a = Relu(x) y = Tanh(a) }"


@pytest.fixture
def place_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a GPU of some compute capability into the machine, for whoever asks about it."""

    def place(capability: str) -> None:
        for module in (backend_module, devices):
            monkeypatch.setattr(module, "find_gpu", lambda: Gpu(name="simulated", compute_capability=capability))
        monkeypatch.setattr(backend_module, "has_driver", lambda: True)

    return place


@pytest.fixture
def compiled(workshop: Workshop) -> pathlib.Path:
    """A model with one engine for sm86 and sm89."""
    path: pathlib.Path = workshop.compile_file(
        workshop.write(GRAPH), engine="tensorrt-rtx", build=asked("sm86", "sm89")
    )
    return path


@pytest.mark.parametrize(
    ("capability", "targets", "reason"),
    [
        ("8.6", (), None),
        ("12.0", (), None),
        ("8.9", ("sm86", "sm89"), None),
        ("7.5", ("sm75",), None),
        ("7.5", (), "the GPU here is sm75, and they are for sm80, sm86, sm89, sm120, sm121"),
        ("9.0", (), "the GPU here is sm90, and they are for sm80, sm86, sm89, sm120, sm121"),
        ("8.0", ("sm86", "sm89"), "the GPU here is sm80, and they are for sm86, sm89"),
    ],
)
def test_engines_run_on_gpus_of_their_targets_alone(
    capability: str, targets: tuple[str, ...], reason: str | None, place_gpu: Callable[[str], None]
) -> None:
    place_gpu(capability)

    assert get_backend("tensorrt-rtx").cannot_run_reason(asked(*targets)) == reason
    assert resolve_engine("auto", asked(*targets)) == ("openvino" if reason else "tensorrt-rtx")


def test_unsigned_engine_is_refused(
    compiled: pathlib.Path, place_gpu: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    place_gpu("8.9")

    executable = open_model(compiled, run=RunOptions(trust=Trust()))

    assert executable.facts.segments == 0
    assert "it has no signature, and engines of tensorrt-rtx need one: `trtnode sign` signs the file" in caplog.text


def test_engine_for_other_gpus_is_not_loaded(
    compiled: pathlib.Path, place_gpu: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    place_gpu("9.0")

    executable = open_model(compiled, run=RunOptions(trust=Trust.of((), ("tensorrt-rtx",))))

    assert executable.facts.segments == 0
    assert "it was built for processor 'sm86,sm89'; here it is 'sm90'." in caplog.text


def test_machine_without_the_library_is_told_which_release_to_install(
    compiled: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing = TensorRtBackend(dataclasses.replace(TENSORRT_RTX, module="no_such_module"))
    monkeypatch.setattr(engine_loading, "get_backend", lambda name: missing)

    open_model(compiled)

    (warning,) = (r.message for r in caplog.records if r.levelname == "WARNING")
    assert f"pip install 'trtnode[tensorrt-rtx]'. The engine was built by release {rtx.__version__}." in warning


def test_served_model_stays_native_where_engines_could_not_run(
    workshop: Workshop, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, cache = workshop.write(GRAPH), EngineCache(tmp_path / "cache", 10**9)

    with caplog.at_level("INFO", logger="trtnode.engines.compile.prepare"):
        executable = prepare_and_open(source, CompileOptions(engine="tensorrt-rtx"), cache)

    assert (executable.facts.engine, executable.facts.engines_built) == ("native", 0)
    assert caplog.messages == [
        f"{source} runs natively: engines of tensorrt-rtx would be built but not run (no GPU here)"
    ]


def test_served_file_whose_engines_can_not_run_here_is_not_built_again(
    compiled: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    executable = prepare_and_open(
        compiled, CompileOptions(engine="tensorrt-rtx"), EngineCache(tmp_path / "cache", 10**9)
    )

    assert (executable.facts.engine, executable.facts.engines_built) == ("native", 0)
    assert len({r.message for r in caplog.records if r.levelname == "WARNING"}) == 1
