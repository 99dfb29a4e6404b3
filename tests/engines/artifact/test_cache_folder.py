from __future__ import annotations

import os
import pathlib

import pytest

from trtnode.engines.artifact.cache import CachedEngine, EngineCache
from trtnode.engines.artifact.cache_folder import default_cache_folder, folder_problem

ENTRY = CachedEngine(envelope="{}", engine=b"engine")


def test_the_cache_is_where_xdg_has_it() -> None:
    assert default_cache_folder({"XDG_CACHE_HOME": "/var/cache/me"}) == pathlib.Path("/var/cache/me/trtnode")


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_an_empty_or_relative_xdg_cache_home_counts_as_none(value: str) -> None:
    assert default_cache_folder({"XDG_CACHE_HOME": value}) == pathlib.Path.home() / ".cache" / "trtnode"


def test_a_user_without_a_home_folder_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> pathlib.Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(pathlib.Path, "home", fail)

    assert default_cache_folder({}) is None
    assert folder_problem(None) == "this user has no home folder, and XDG_CACHE_HOME is not set"


def test_a_folder_that_is_not_there_yet_can_be_a_cache(tmp_path: pathlib.Path) -> None:
    assert folder_problem(tmp_path / "new" / "cache") is None


@pytest.mark.parametrize("below", [".", "cache"])
def test_a_cache_that_is_a_file_keeps_nothing_and_is_told_of_once(
    below: str, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.touch()

    for _ in range(2):
        cache = EngineCache(file / below, 1000)
        cache.put("key", ENTRY)
        cache.put_verdicts("key", {"node": "no"})
        assert (cache.get("key"), cache.verdicts("key"), cache.timing_file("machine")) == (None, {}, None)
        assert cache.trust.machine is None

    assert [record.message for record in caplog.records] == [
        f"There is no engine cache, so engines are built at each start: {file} is no folder. "
        "Name a folder with --cache, or with cache.dir in servable.yaml."
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_cache_that_can_not_be_made_or_read_is_told_of(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert folder_problem(tmp_path / "cache") == f"{tmp_path / 'cache'} can't be made in {tmp_path}"
        assert folder_problem(tmp_path) is None
        tmp_path.chmod(0)
        assert folder_problem(tmp_path) == f"{tmp_path} can't be read"
    finally:
        tmp_path.chmod(0o700)
