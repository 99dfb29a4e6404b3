"""Every benchmark tells its options, and measures nothing for that."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize("name", ["defaults", "lengths", "overhead", "sparse", "start_up"])
def test_help_is_an_answer_and_no_measurement(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])

    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(f"benchmarks.{name}").main()

    assert f"usage: python -m benchmarks.{name}" in capsys.readouterr().out
