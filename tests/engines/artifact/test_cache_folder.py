from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from collections.abc import Iterator

import pytest

from trtnode.engines.artifact.cache import CachedEngine, EngineCache
from trtnode.engines.artifact.cache_folder import default_cache_folder, folder_problem

ENTRY = CachedEngine(envelope="{}", engine=b"engine", sha256=hashlib.sha256(b"engine").hexdigest())


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


def permissions(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_mask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_mask")
def test_a_cache_is_private_whatever_the_mask_is(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "below" / "cache"
    cache = EngineCache(folder, 1000)

    cache.put("key", ENTRY)
    assert cache.trust.machine is not None
    cache.trust.machine.mark(b"data")

    assert permissions(folder) == 0o700
    assert {file.name: permissions(file) for file in folder.iterdir()} == {
        "key.json": 0o600, "key.engine": 0o600, "machine.key": 0o600
    }  # fmt: skip


@pytest.mark.usefixtures("open_mask")
def test_a_cache_of_an_older_version_becomes_private(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(0o755)
    for name in ("key.json", "key.engine", "machine.timing"):
        (folder / name).touch(0o644)

    EngineCache(folder, 1000)

    assert permissions(folder) == 0o700
    assert {permissions(file) for file in folder.iterdir()} == {0o600}


@pytest.mark.usefixtures("open_mask")
def test_a_folder_with_other_files_stays_open_and_the_entries_in_it_do_not(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(0o755)
    (folder / "model.onnx").touch(0o644)
    (folder / "key.engine").touch(0o644)

    EngineCache(folder, 1000)

    assert permissions(folder) == 0o755
    assert {file.name: permissions(file) for file in folder.iterdir()} == {"model.onnx": 0o644, "key.engine": 0o600}
