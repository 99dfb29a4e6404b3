"""Machines that share a store: what one has built, the others take; what nobody vouches for, nobody takes."""

from __future__ import annotations

import gc
import json
import logging
import pathlib
import pickle
import secrets
import threading
from collections.abc import Callable
from typing import Any, Never

import pytest

from faulty_backends import UnreliableBackend
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.envelope import Device
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.errors import KeyFileError
from trtnode.engines.store import shared
from trtnode.engines.store.places import Folder
from trtnode.engines.store.shared import SharedStore, store_events
from workshop import Workshop

GRAPH = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) r = Relu(e) y = Neg(r) }"
NEEDS_SIGNATURE = Trust(allow_unsigned=frozenset())

CompileOn = Callable[..., CompiledModel]


@pytest.fixture
def address(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def compile_on(tmp_path: pathlib.Path, workshop: Workshop, in_process: InProcessWorker, address: str) -> CompileOn:
    """Compile on a machine with a cache of its own, and the store of all."""
    source = workshop.write(GRAPH)

    def compile_it(machine: str, engine: str = "reference", **settings: Any) -> CompiledModel:
        store = settings.pop("store", None) or SharedStore(address)
        cache = EngineCache(tmp_path / machine, 2**30, shared=store, **settings)
        return workshop.compile(source, engine=engine, native_ops=("Relu",), cache=cache, worker=in_process)

    return compile_it


def key_file(path: pathlib.Path, secret: bytes | None = None) -> pathlib.Path:
    path.write_bytes(secret or secrets.token_bytes(32))
    path.chmod(0o600)
    return path


def test_what_one_machine_has_built_others_take(compile_on: CompileOn) -> None:
    first = compile_on("a")

    second = compile_on("b")

    assert (first.engines_built, second.engines_built, second.engines_cached) == (2, 0, 2)


def test_engines_that_need_a_signature_get_that_of_the_machine_that_takes_them(compile_on: CompileOn) -> None:
    compile_on("a", trust=NEEDS_SIGNATURE)

    assert compile_on("b", trust=NEEDS_SIGNATURE).engines_built == 0
    assert compile_on("b", trust=NEEDS_SIGNATURE, store=SharedStore("/nowhere/store")).engines_built == 0


@pytest.mark.parametrize("what", ["version", "device"])
def test_a_file_of_another_kind_of_machine_is_not_taken(
    what: str, compile_on: CompileOn, unreliable: type[UnreliableBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_on("a", "unreliable")

    if what == "version":
        monkeypatch.setattr(unreliable, "shown_as", "2.0")
    else:
        monkeypatch.setattr(unreliable, "device", lambda self: Device(features="amx", name="python"))

    assert compile_on("b", "unreliable").engines_built == 2
    assert compile_on("c", "unreliable").engines_built == 0


def with_all(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[pathlib.Path], None]:
    def apply(folder: pathlib.Path) -> None:
        for path in folder.glob(pattern):
            path.write_bytes(change(path.read_bytes()))

    return apply


def swap_entries(folder: pathlib.Path) -> None:
    names = sorted(folder.glob("*.json"))
    contents = [path.read_bytes() for path in names]
    for path, content in zip(names, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)


def remove_bytes(folder: pathlib.Path) -> None:
    for path in folder.glob("*.bytes"):
        path.unlink()


def resign(folder: pathlib.Path) -> None:
    """Publish everything again with a key of one's own."""
    key = key_file(folder.parent / "own.key")
    for path in folder.glob("*.json"):
        own = SharedStore(str(folder), key)
        record = json.loads(path.read_bytes())
        covered = {name: record[name] for name in ("fields", "content", "size")}
        path.write_text(json.dumps({**covered, "mark": own._mark(path.stem, covered)}))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(with_all("*.bytes", lambda data: data[:-1]), id="cut"),
        pytest.param(with_all("*.json", lambda data: data[:-1]), id="no-json"),
        pytest.param(with_all("*.json", lambda data: b"[1]"), id="no-entry"),
        pytest.param(with_all("*.json", lambda data: data.replace(b"reference", b"openvino_")), id="changed"),
        pytest.param(remove_bytes, id="no-bytes"),
        pytest.param(swap_entries, id="swapped"),
        pytest.param(resign, id="foreign-key"),
        pytest.param(lambda folder: key_file(folder / "store.key"), id="other-key"),
        pytest.param(lambda folder: (folder / "store.key").chmod(0o644), id="key-of-everybody"),
        pytest.param(lambda folder: (folder / "store.key").unlink(), id="no-key"),
    ],
)
def test_what_nobody_vouches_for_is_built_again_with_one_warning(
    damage: Callable[[pathlib.Path], None], compile_on: CompileOn, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    compile_on("a")
    damage(pathlib.Path(address))

    assert compile_on("b").engines_built == 2
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 1


def test_a_damaged_entry_is_replaced_by_what_is_built_instead(compile_on: CompileOn, address: str) -> None:
    compile_on("a")
    with_all("*.json", lambda data: b"")(pathlib.Path(address))

    compile_on("b")

    assert compile_on("c").engines_built == 0


@pytest.mark.parametrize("access", ["read", "write"])
def test_a_store_that_fails_costs_one_warning_and_no_compilation(
    access: str, compile_on: CompileOn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Never:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, access, fail)

    compiled = compile_on("a")

    assert compiled.engines_built == 2
    (warning,) = (one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)
    assert "No space left on device" in warning


def test_a_store_without_a_folder_is_none(compile_on: CompileOn, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()

    assert compile_on("a", store=SharedStore(str(tmp_path / "file"))).engines_built == 2


def test_a_store_that_hangs_is_asked_once(compile_on: CompileOn, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    asked: list[int] = []

    def hang(*_: object) -> None:
        asked.append(1)
        answers.wait()

    monkeypatch.setattr(shared, "PATIENCE_S", 0.05)
    monkeypatch.setattr(Folder, "read", hang)
    store = SharedStore(address)

    compiled = compile_on("a", store=store)
    answers.set()

    assert compiled.engines_built == 2
    assert len(asked) == 1
    assert store.state.events["failed"] == 1


def test_machines_with_the_same_key_share_a_filesystem_of_fsspec(compile_on: CompileOn, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("fsspec")
    secret = secrets.token_bytes(32)

    def store(machine: str) -> SharedStore:
        return SharedStore(f"memory://{tmp_path.name}/engines", key_file(tmp_path / f"{machine}.key", secret))

    built = [compile_on(machine, store=store(machine)).engines_built for machine in ("a", "b")]

    assert built == [2, 0]


def test_a_url_without_its_library_is_a_store_that_fails(compile_on: CompileOn, tmp_path: pathlib.Path) -> None:
    store = SharedStore("nothing://engines", key_file(tmp_path / "key"))

    assert compile_on("a", store=store).engines_built == 2


def test_a_key_file_that_is_named_must_be_there(address: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyFileError, match="can't be read"):
        SharedStore(address, tmp_path / "missing.key")


def test_another_process_knows_what_has_failed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "read", lambda *_: 1 / 0)
    store = SharedStore(address)
    assert store.fetch("key") is None

    other = pickle.loads(pickle.dumps(store))

    assert other.state == store.state
    other.state.events["taken"] += 1
    store.follow(other)
    assert store.state.events["taken"] == 1


def test_events_of_all_stores_are_counted(compile_on: CompileOn, address: str) -> None:
    store = SharedStore(address)
    gc.collect()  # stores of other tests
    before = store_events()

    compile_on("a")
    compile_on("b", store=store)

    assert store.state.events == {"taken": 2, "published": 0, "failed": 0}
    assert store_events()["taken"] - before["taken"] == 2
