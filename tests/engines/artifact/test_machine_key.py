"""A machine knows the engines that it built by a secret key of its own."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
import threading
from typing import Any

import pytest

from envelopes import PLAN
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.machine_key import MachineKey
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineRejectedError, KeyFileError
from trtnode.engines.runtime.options import RunOptions
from workshop import Workshop


def test_plan_that_this_machine_built_is_accepted_here_and_nowhere_else(tmp_path: pathlib.Path) -> None:
    here, there = (Trust().on_machine(tmp_path / name) for name in ("here", "there"))
    there.mark(PLAN)

    plan = here.mark(PLAN)

    here.check(plan, "s")
    with pytest.raises(EngineRejectedError, match="not of this machine"):
        there.check(plan, "s")
    with pytest.raises(EngineRejectedError, match="not of this machine"):
        here.check(dataclasses.replace(plan, precision_effective="fp16"), "s")


def test_key_of_the_machine_is_made_once_by_however_many_and_for_its_owner_alone(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "new" / "machine.key"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        marks = list(pool.map(lambda _: MachineKey(file).mark(b"data"), range(16)))

    assert len(set(marks)) == 1
    assert MachineKey(file).accepts(b"data", marks[0] or "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["machine.key"]


def test_key_that_changes_hands_while_it_is_read_is_never_used(tmp_path: pathlib.Path) -> None:
    """Owner and permissions are those of the file that was read, not of one that has its name by then."""
    file, own, foreign = (tmp_path / name for name in ("store.key", "own", "foreign"))
    for path, content, mode in ((own, b"o" * 32, 0o600), (foreign, b"f" * 32, 0o640)):
        path.write_bytes(content)
        path.chmod(mode)
    os.link(own, file)
    key, wanted, over = MachineKey(file), MachineKey(own).tag(b"data"), threading.Event()

    def exchange() -> None:
        for source in itertools.cycle((foreign, own)):
            if over.is_set():
                return
            os.link(source, tmp_path / "next")
            (tmp_path / "next").rename(file)

    def read() -> str:
        try:
            return key.tag(b"data")
        except KeyFileError:
            return wanted

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        exchanging = pool.submit(exchange)
        tags = {read() for _ in range(5000)}
        over.set()
        exchanging.result()

    assert tags == {wanted}


def linked(file: pathlib.Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def piped(file: pathlib.Path) -> None:
    file.unlink()
    os.mkfifo(file)


def open_to_others(file: pathlib.Path) -> None:
    file.chmod(0o640)


def cut_short(file: pathlib.Path) -> None:
    file.write_bytes(file.read_bytes()[:16])


def replaced(file: pathlib.Path) -> None:
    file.write_bytes(bytes(32))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(pathlib.Path.unlink, "can't be read", id="lost"),
        pytest.param(open_to_others, "others can read or change it", id="open-to-others"),
        pytest.param(cut_short, "should have 32 bytes, not 16", id="cut-short"),
        pytest.param(linked, "is a link; put the key itself there", id="a-link"),
        pytest.param(piped, "is no regular file; check the path", id="a-pipe"),
        pytest.param(replaced, "", id="another"),
    ],
)
def test_cached_engines_are_built_again_where_the_key_of_the_machine_is_of_no_use(
    spoil: Any,
    message: str,
    workshop: Workshop,
    source: pathlib.Path,
    in_process: InProcessWorker,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As TensorRT's plans are treated: none runs without a signature."""
    cache = EngineCache(tmp_path / "cache", 2**30, trust=Trust(allow_unsigned=frozenset()))
    options = {"engine": "reference", "native_ops": ("Relu",), "cache": cache, "worker": in_process}
    workshop.compile(source, **options)
    found = workshop.compile(source, **options)
    spoil(tmp_path / "cache" / "machine.key")

    compiled = workshop.compile(source, **options)

    assert (found.engines_built, found.engines_cached) == (0, 2)
    assert (compiled.engines_built, compiled.engines_cached) == (2, 0)
    assert message in caplog.text
    assert "Ignoring a cache entry, so its engine is built again" in caplog.text


def test_cached_engine_that_was_exchanged_by_another_is_built_again(
    workshop: Workshop, source: pathlib.Path, in_process: InProcessWorker, tmp_path: pathlib.Path
) -> None:
    options = {"engine": "reference", "native_ops": ("Relu",), "worker": in_process}
    workshop.compile(source, cache=EngineCache(tmp_path / "attacker", 2**30), **options)
    cache = EngineCache(tmp_path / "cache", 2**30, trust=Trust(allow_unsigned=frozenset()))
    workshop.compile(source, cache=cache, **options)
    for file in (tmp_path / "attacker").glob("*.*"):
        if file.suffix in (".engine", ".json"):
            (tmp_path / "cache" / file.name).write_bytes(file.read_bytes())

    assert workshop.compile(source, cache=cache, **options).engines_built == 2


def test_file_compiled_here_is_trusted_here(
    workshop: Workshop, source: pathlib.Path, in_process: InProcessWorker, tmp_path: pathlib.Path
) -> None:
    cache = EngineCache(tmp_path / "cache", 2**30, trust=Trust(allow_unsigned=frozenset()))
    options = {"engine": "reference", "native_ops": ("Relu",), "worker": in_process}
    marked = workshop.compile_file(source, cache=cache, **options)
    unmarked = workshop.compile_file(source, **options)

    assert open_model(marked, run=RunOptions(trust=cache.trust)).facts.segments == 2
    assert open_model(unmarked, run=RunOptions(trust=cache.trust)).facts.segments == 0
