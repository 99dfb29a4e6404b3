from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from trtnode.engines.artifact.temporary_folder import PREFIX, TemporaryFolder, remove_abandoned

HOLD = """
import sys
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "left").mkdir()
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of temporary files, for this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    remove_abandoned.cache_clear()
    return tmp_path


def holder() -> tuple[subprocess.Popen[bytes], pathlib.Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, pathlib.Path(process.stdout.readline().decode().strip())


def test_a_folder_goes_when_it_is_closed(place: pathlib.Path) -> None:
    with TemporaryFolder() as folder:
        (folder / "file").touch()

    assert list(place.iterdir()) == []


def test_a_folder_goes_with_its_last_reference(place: pathlib.Path) -> None:
    folder = TemporaryFolder()
    assert folder.path.is_dir()
    del folder

    assert list(place.iterdir()) == []


def test_the_folder_of_a_killed_process_goes_with_the_next_start() -> None:
    process, left = holder()
    with process:
        process.kill()
    assert left.is_dir()

    with TemporaryFolder() as folder:
        assert folder.is_dir()
        assert not left.exists()


def test_the_folder_of_a_process_that_lives_stays() -> None:
    process, held = holder()
    with process:
        remove_abandoned()

        assert (held / "left").is_dir()
        process.kill()


def test_a_process_that_is_at_its_end_in_order_leaves_nothing(place: pathlib.Path) -> None:
    process, _ = holder()
    process.communicate(b"", timeout=60)

    assert list(place.iterdir()) == []


def test_what_only_looks_like_such_a_folder_stays(place: pathlib.Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / f"{PREFIX}file").touch()

    remove_abandoned()

    assert sorted(path.name for path in place.iterdir()) == ["elsewhere", f"{PREFIX}file", f"{PREFIX}link"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another_user_stays(place: pathlib.Path) -> None:
    foreign = place / f"{PREFIX}foreign"
    foreign.mkdir()
    os.chown(foreign, 12345, 12345)

    remove_abandoned()

    assert foreign.is_dir()
