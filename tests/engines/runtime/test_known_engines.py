"""A machine remembers facts about its engine libraries."""

from __future__ import annotations

import pathlib

import pytest

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.envelope import Device
from trtnode.engines.backends import cpu_features
from trtnode.engines.compile.first_comparison import known_engines
from trtnode.engines.openvino.backend import OpenVinoBackend

MODEL = pathlib.Path("model.onnx")


class CountingBackend(OpenVinoBackend):
    """Counts the models that OpenVINO would compile to name its device."""

    asked = 0

    def device(self) -> Device:
        self.asked += 1
        return Device(features="AVX2", name="a processor")


def test_the_device_that_a_library_names_is_remembered(tmp_path: pathlib.Path) -> None:
    backend = CountingBackend()

    devices = [known_engines(MODEL, EngineCache(tmp_path, 1 << 20)).device(backend) for _ in range(3)]

    assert devices == [Device(features="AVX2", name="a processor")] * 3
    assert backend.asked == 1


def test_a_library_is_asked_again_where_other_kernels_are_chosen(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = CountingBackend()
    known_engines(MODEL, EngineCache(tmp_path, 1 << 20)).device(backend)

    monkeypatch.setenv(cpu_features.LIMIT_VARIABLE, "SSE41")
    known_engines(MODEL, EngineCache(tmp_path, 1 << 20)).device(backend)

    assert backend.asked == 2


def test_a_damaged_record_of_a_device_is_replaced(tmp_path: pathlib.Path) -> None:
    backend = CountingBackend()
    known_engines(MODEL, EngineCache(tmp_path, 1 << 20)).device(backend)
    for record in tmp_path.glob("*.json"):
        record.write_text('{"features": "AVX2"}')

    devices = [known_engines(MODEL, EngineCache(tmp_path, 1 << 20)).device(backend) for _ in range(2)]

    assert devices[0] == devices[1] == Device(features="AVX2", name="a processor")
    assert backend.asked == 2


def test_without_a_cache_the_library_is_asked() -> None:
    backend = CountingBackend()

    known_engines(MODEL, None).device(backend)
    known_engines(MODEL, None).device(backend)

    assert backend.asked == 2
