"""Copies of model files: shared, private, within the size of the cache, and whole."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest

from trtnode.engines.inputs import source_copies
from trtnode.engines.inputs.source_copies import CopyError, SourceCopies
from workshop import Workshop

SIZE = 1000


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "cache"


def write(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Write a file of a size of its own content."""
    path = folder / f"{name}.onnx"
    path.write_bytes(name.encode().ljust(SIZE, b"."))
    return path


def kept(cache: pathlib.Path) -> set[str]:
    return {file.name for file in (cache / "sources").rglob("*.onnx")}


def test_equal_files_share_one_copy(tmp_path: pathlib.Path, cache: pathlib.Path) -> None:
    copies, path = SourceCopies(cache, 10 * SIZE), write(tmp_path, "m")

    first = copies.take(path, [], None)
    written_ns = first.path.stat().st_mtime_ns
    second = copies.take(path, [], None)

    assert first.path == second.path
    assert first.path.stat().st_mtime_ns == written_ns  # who holds it, and looks at that, sees no change
    assert copies.find(path, first.files) is not None
    assert [one.name for one in (cache / "sources").iterdir()] == [first.path.parent.name]


def test_the_copy_used_longest_ago_makes_room_unless_somebody_holds_it(
    tmp_path: pathlib.Path, cache: pathlib.Path
) -> None:
    copies = SourceCopies(cache, 2 * SIZE)
    held = copies.take(write(tmp_path, "held"), [], None)
    copies.take(write(tmp_path, "old"), [], None).close()
    for second, name in enumerate(("held", "old")):
        (file,) = (cache / "sources").rglob(f"{name}.onnx")
        os.utime(file.parent, (second, second))

    copies.take(write(tmp_path, "new"), [], None).close()

    assert kept(cache) == {"held.onnx", "new.onnx"}
    assert held.path.read_bytes().startswith(b"held")


def test_what_the_cache_has_no_room_for_is_copied_elsewhere(tmp_path: pathlib.Path, cache: pathlib.Path) -> None:
    copies, spare = SourceCopies(cache, 2 * SIZE - 1), tmp_path / "spare"
    cache.mkdir()
    (cache / "key.engine").write_bytes(bytes(SIZE))  # engines come first
    path = write(tmp_path, "m")

    assert copies.take(path, [], spare).path.is_relative_to(spare)
    with pytest.raises(OSError, match="No space left on device"):
        copies.take(path, [], None)


def test_a_small_model_without_room_is_used_as_it_is(tmp_path: pathlib.Path, shared_workshop: Workshop) -> None:
    path = shared_workshop.write("g (float[4] x) => (float[4] y) { y = Relu(x) }")

    source, files = SourceCopies(None, 0).own(path, None)

    assert (source, list(files)) == (path, [path.name])


def test_a_file_that_changes_while_it_is_copied_is_refused(
    tmp_path: pathlib.Path, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "m")
    copy = source_copies._transfer

    def copy_while_it_grows(*files) -> None:
        copy(*files)
        with path.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(source_copies, "_transfer", copy_while_it_grows)

    with pytest.raises(CopyError, match="it changed while it was copied"):
        SourceCopies(cache, 10 * SIZE).take(path, [], None)

    assert list((cache / "sources").iterdir()) == []


def test_files_are_copied_where_the_system_does_not_do_it(
    tmp_path: pathlib.Path, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    path = write(tmp_path, "m")

    assert SourceCopies(cache, 10 * SIZE).take(path, [], None).path.read_bytes() == path.read_bytes()


def test_what_a_killed_process_left_is_removed_for_room(tmp_path: pathlib.Path, cache: pathlib.Path) -> None:
    left = cache / "sources" / ".begun"
    left.mkdir(parents=True)
    (left / "m.onnx").write_bytes(bytes(SIZE))

    SourceCopies(cache, SIZE).take(write(tmp_path, "m"), [], None)

    assert not left.exists()
