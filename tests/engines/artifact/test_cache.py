"""Engines are built once; whatever the cache is unsure about is built again."""

from __future__ import annotations

import concurrent.futures
import errno
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from comparison import AssertSame, RunPlainly
from faulty_backends import UnreliableBackend
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.cache import CachedEngine, EngineCache, engine_key
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.refusal import Refusal
from trtnode.engines.compile.opening import open_model
from trtnode.partitioner.cut.labels import ReasonCode
from workshop import Workshop

GRAPH = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) r = Relu(e) y = Neg(r) }"
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
LARGE = 2**30


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(GRAPH)


@pytest.fixture
def compile_cached(
    workshop: Workshop, source: pathlib.Path, in_process: InProcessWorker, cache: EngineCache
) -> Callable[..., CompiledModel]:
    """Compile with the reference backend, which is quick, in this process."""

    def compile_it(**changes: Any) -> Any:
        options = {"engine": "reference", "native_ops": ("Relu",), "cache": cache, "worker": in_process, **changes}
        return workshop.compile(options.pop("source", source), **options)

    return compile_it


def test_second_compile_builds_nothing(
    workshop: Workshop, source: pathlib.Path, cache: EngineCache, plain: RunPlainly, same: AssertSame
) -> None:
    first = workshop.compile(source, cache=cache, native_ops=("Relu",))

    second = workshop.compile(source, cache=cache, native_ops=("Relu",))

    assert (first.engines_built, first.engines_cached) == (2, 0)
    assert (second.engines_built, second.engines_cached) == (0, 2)
    path = workshop.write(second.model)
    executable = open_model(path)
    assert executable.facts.segments == 2
    same(executable.run(FEEDS), plain(source, FEEDS))
    same(plain(path, FEEDS), plain(source, FEEDS))


def test_moved_model_finds_its_engines(compile_cached: Callable[..., CompiledModel], source: pathlib.Path) -> None:
    compile_cached()

    moved = compile_cached(source=source.rename(source.with_name("other.onnx")))

    assert (moved.engines_built, moved.engines_cached) == (0, 2)


@pytest.mark.parametrize(
    ("graph", "built"),
    [
        pytest.param(GRAPH.replace("Neg(r)", "Abs(r)"), 1, id="other-node"),
        pytest.param(GRAPH.replace("[N,4]", "[2,4]"), 2, id="other-shape"),
        pytest.param(GRAPH.replace("float", "float16"), 2, id="other-type"),
    ],
)
def test_changed_segment_is_built_again(
    graph: str, built: int, compile_cached: Callable[..., CompiledModel], workshop: Workshop
) -> None:
    compile_cached()

    changed = compile_cached(source=workshop.write(graph))

    assert changed.engines_built == built


def test_changed_weight_is_built_again(compile_cached: Callable[..., CompiledModel], workshop: Workshop) -> None:
    graph = "g (float[N,4] x) => (float[N,4] y) <float[4] w = {1,2,3,%d}> { r = Relu(x) y = Mul(r, w) }"
    compile_cached(source=workshop.write(graph % 4))

    assert compile_cached(source=workshop.write(graph % 4)).engines_built == 0
    assert compile_cached(source=workshop.write(graph % 5)).engines_built == 1


@pytest.mark.parametrize("what", ["version", "device", "properties"])
def test_other_library_or_machine_builds_again(
    what: str,
    compile_cached: Callable[..., CompiledModel],
    unreliable: type[UnreliableBackend],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_cached(engine="unreliable")

    if what == "version":
        monkeypatch.setattr(unreliable, "shown_as", "2.0")
    elif what == "device":
        from trtnode.engines.artifact.envelope import Device

        monkeypatch.setattr(unreliable, "device", lambda self: Device(features="amx", name="python"))
    else:
        monkeypatch.setattr(unreliable, "build_properties", lambda self, options: {"HINT": "other"})

    assert compile_cached(engine="unreliable").engines_built == 2
    assert compile_cached(engine="unreliable").engines_built == 0


def test_every_named_part_changes_the_key() -> None:
    parts = {"segment": "a", "options": "b"}

    keys = [engine_key(**parts), engine_key(segment="b", options="a"), engine_key(segment="a"), engine_key(x="a")]

    assert len({*keys}) == len(keys)
    assert engine_key(**dict(reversed(parts.items()))) == keys[0]


def damage_files(pattern: str, content: Callable[[bytes], bytes | None]) -> Callable[[pathlib.Path], None]:
    def damage(folder: pathlib.Path) -> None:
        for path in folder.glob(pattern):
            changed = content(path.read_bytes())
            path.unlink() if changed is None else path.write_bytes(changed)

    return damage


def damage_field(**fields: Any) -> Callable[[pathlib.Path], None]:
    return damage_files("*.json", lambda data: json.dumps(json.loads(data) | fields).encode())


def damage_envelope(text: bytes, by: bytes) -> Callable[[pathlib.Path], None]:
    return damage_files("*.json", lambda data: data.replace(text, by))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage_files("*.engine", lambda data: data[:-1]), id="engine-cut-short"),
        pytest.param(damage_files("*.engine", lambda data: bytes([data[0] ^ 1]) + data[1:]), id="bit-flipped"),
        pytest.param(damage_files("*.json", lambda data: data[:20]), id="record-cut-short"),
        pytest.param(damage_files("*.json", lambda data: b""), id="record-empty"),
        pytest.param(damage_files("*.json", lambda data: b"\xff" * 20), id="record-garbage"),
        pytest.param(damage_files("*.json", lambda data: b"[" * 100_000), id="record-too-deep"),
        pytest.param(damage_files("*.json", lambda data: b"null"), id="record-null"),
        pytest.param(damage_files("*.json", lambda data: b"[]"), id="record-list"),
        pytest.param(damage_files("*.json", lambda data: b"{}"), id="record-without-fields"),
        pytest.param(damage_field(envelope="{"), id="envelope-broken"),
        pytest.param(damage_field(envelope=None), id="envelope-missing"),
        pytest.param(damage_envelope(rb"\"format_version\":2", rb"\"format_version\":9"), id="envelope-newer"),
        pytest.param(damage_field(refusal={"code": "NONSENSE", "detail": "x"}), id="refusal-unknown"),
        pytest.param(damage_field(refusal=["INACCURATE"]), id="refusal-list"),
        pytest.param(damage_field(refusal={}), id="refusal-empty"),
    ],
)
def test_damaged_entry_is_built_again_with_a_warning(
    damage: Callable[[pathlib.Path], None],
    compile_cached: Callable[..., CompiledModel],
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    compile_cached()
    damage(tmp_path / "cache")

    compiled = compile_cached()

    assert (compiled.engines_built, compiled.engines_cached) == (2, 0)
    assert "cache entry" in caplog.text
    caplog.clear()
    assert compile_cached().engines_built == 0
    assert not caplog.records


def test_entry_of_another_segment_is_built_again(
    compile_cached: Callable[..., CompiledModel], tmp_path: pathlib.Path
) -> None:
    compile_cached()
    one, other = sorted(p.stem for p in (tmp_path / "cache").glob("*.engine"))
    for suffix in (".json", ".engine"):
        (tmp_path / "cache" / f"{one}{suffix}").replace(tmp_path / "cache" / f"{other}{suffix}")

    assert compile_cached().engines_built == 2


def test_entry_whose_envelope_is_of_other_bytes_is_built_again(
    compile_cached: Callable[..., CompiledModel], tmp_path: pathlib.Path
) -> None:
    compile_cached()
    damage_files("*.engine", lambda _: b"other")(tmp_path / "cache")
    damage_field(sha256=hashlib.sha256(b"other").hexdigest())(tmp_path / "cache")

    assert compile_cached().engines_built == 2


def test_engines_are_copied_from_a_cache_on_another_file_system(
    compile_cached: Callable[..., CompiledModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_cached()

    def refuse(*_: Any) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)

    assert compile_cached().engines_cached == 2


def test_missing_engine_is_a_miss_without_a_warning(
    compile_cached: Callable[..., CompiledModel], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    compile_cached()
    damage_files("*.engine", lambda data: None)(tmp_path / "cache")

    assert compile_cached().engines_built == 2
    assert not caplog.records


def test_refusals_are_remembered(
    compile_cached: Callable[..., CompiledModel], unreliable: type[UnreliableBackend], in_process: InProcessWorker
) -> None:
    unreliable.refuses = ("Exp",)
    unreliable.miscomputes = ("Neg",)
    first = compile_cached(engine="unreliable")
    in_process.calls.clear()

    second = compile_cached(engine="unreliable")

    assert "build" not in in_process.calls
    assert (second.engines_built, second.engine) == (0, "native")
    assert [(n.node, n.code, n.detail) for n in second.report.native] == [
        (n.node, n.code, n.detail) for n in first.report.native
    ]


def test_refusal_is_found_again(cache: EngineCache) -> None:
    refusal = Refusal(code=ReasonCode.BUILD_FAILED, detail="Es ist zu schwer für mich.")

    cache.put("key", refusal)

    assert cache.get("key") == refusal
    assert cache.get("other") is None


def entry(size: int) -> CachedEngine:
    engine = os.urandom(size)
    return CachedEngine(envelope="{}", engine=engine, sha256=hashlib.sha256(engine).hexdigest())


def test_least_recently_used_entries_are_dropped(tmp_path: pathlib.Path) -> None:
    cache = EngineCache(tmp_path, 3500)
    for age, key in enumerate(("a", "b", "c")):
        cache.put(key, entry(1000))
        os.utime(tmp_path / f"{key}.json", (age, age))
    assert cache.get("a") is not None

    cache.put("d", entry(1000))

    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"] or [
        key for key in "abcd" if cache.get(key)
    ] == ["a", "d"]
    assert not (tmp_path / "b.engine").exists()
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 3500


def test_entry_larger_than_the_cache_is_not_kept_and_drops_no_other(tmp_path: pathlib.Path) -> None:
    cache = EngineCache(tmp_path, 500)
    cache.put("small", entry(100))

    cache.put("large", entry(1000))

    assert cache.get("large") is None
    assert cache.get("small") is not None
    assert {file.stem for file in tmp_path.iterdir()} == {"small"}


def test_cache_that_can_not_be_made_is_a_warning(
    compile_cached: Callable[..., CompiledModel], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    compiled = compile_cached(cache=EngineCache(tmp_path / "file" / "cache", LARGE))

    assert compiled.engines_built == 2
    assert f"{tmp_path}/file is no folder" in caplog.text


def test_full_disk_is_a_warning(
    compile_cached: Callable[..., CompiledModel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trtnode.engines.artifact.cache.write_atomically", fail)

    assert compile_cached().engines_built == 2
    assert "can't be written: [Errno 28] No space left on device" in caplog.text


def test_cache_that_can_only_be_read_is_used(
    compile_cached: Callable[..., CompiledModel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compile_cached()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "utime", refuse)

    assert compile_cached().engines_cached == 2
    assert not caplog.records


def test_threads_may_share_a_cache(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caches = [EngineCache(tmp_path, 20_000) for _ in range(2)]

    def work(number: int) -> bool:
        key = f"k{number % 7}"
        engine = key.encode() * 2000
        sha256 = hashlib.sha256(engine).hexdigest()
        caches[number % 2].put(key, CachedEngine(envelope=key, engine=engine, sha256=sha256))
        found = caches[number % 2].get(key)
        return found is None or (isinstance(found, CachedEngine) and found.engine == engine)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        right = list(pool.map(work, range(120)))

    assert all(right)
    assert not caplog.records


WRITER = """
import hashlib, pathlib, sys
from trtnode.engines.artifact.cache import CachedEngine, EngineCache
cache = EngineCache(pathlib.Path(sys.argv[1]), 60_000)
print("ready", flush=True)
sys.stdin.readline()
engine = sys.argv[2].encode() * 2000
for number in range(30):
    key = f"k{number % 5}"
    cache.put(key, CachedEngine(envelope=sys.argv[2], engine=engine, sha256=hashlib.sha256(engine).hexdigest()))
    found = cache.get(key)
    assert found is None or found.engine == found.envelope.encode() * 2000, found
"""


def test_processes_may_share_a_cache(tmp_path: pathlib.Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    outcomes = [process.communicate("go\n")[1] for process in processes]

    assert [process.returncode for process in processes] == [0, 0], outcomes
    assert not list(tmp_path.glob("*.tmp"))
    left = EngineCache(tmp_path, 60_000)
    assert any(left.get(f"k{number}") for number in range(5))
