"""From a file to something that runs, whether it is compiled or not."""

from __future__ import annotations

import dataclasses
import errno
import gc
import itertools
import pathlib
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from chain import FEEDS, GRAPH
from comparison import AssertSame, RunPlainly
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.build import builder
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.prepare import prepare_model
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.errors import ModelFileError
from trtnode.partitioner.model import protobuf_walk
from workshop import Workshop, prepare_and_open

OPTIONS = CompileOptions(engine="openvino", partition=PartitionOptions(native_ops=("Relu",)))


@pytest.fixture
def source(workshop: Workshop) -> pathlib.Path:
    return workshop.write(GRAPH)


def test_model_is_compiled_and_loaded_without_writing_a_file(
    source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    executable = prepare_and_open(source, OPTIONS)

    assert executable.facts.segments == 2
    assert executable.facts.engines_built == 2
    same(executable.run(FEEDS), plain(source, FEEDS))
    assert list(source.parent.iterdir()) == [source]


def test_engines_are_freed_with_their_model(source: pathlib.Path) -> None:
    gc.disable()  # memory that waits for the garbage collection piles up while models are loaded again and again
    try:
        executable = prepare_and_open(source, OPTIONS)
        executable.run(FEEDS)
        engines = [weakref.ref(one) for one in gc.get_objects() if type(one).__name__ == "OpenVinoEngine"]
        before = sum(one() is not None for one in engines)

        executable.close()
        del executable

        assert sum(one() is not None for one in engines) <= before - 2
    finally:
        gc.enable()


@pytest.mark.parametrize("full", [(builder, "write_temporary"), (SubprocessWorker, "call")], ids=["here", "in-a-child"])
def test_model_runs_natively_where_the_disk_is_too_full_to_compile_it(
    full: tuple[Any, str],
    source: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*full, fail)

    executable = prepare_and_open(source, OPTIONS)

    assert executable.facts.engine == "native"
    assert "runs natively, since it can't be compiled" in caplog.text
    assert "No space left on device" in caplog.text
    same(executable.run(FEEDS), plain(source, FEEDS))


def test_second_start_builds_nothing(
    source: pathlib.Path, plain: RunPlainly, same: AssertSame, cache: EngineCache
) -> None:
    prepare_and_open(source, OPTIONS, cache)

    executable = prepare_and_open(source, OPTIONS, cache)

    assert executable.facts.engines_built == 0
    assert executable.facts.segments == 2
    same(executable.run(FEEDS), plain(source, FEEDS))


@pytest.mark.parametrize("compiled", [False, True], ids=["source", "compiled"])
def test_native_uses_no_engine(
    compiled: bool, source: pathlib.Path, workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    path = workshop.compile_file(source) if compiled else source

    executable = prepare_and_open(path, CompileOptions(engine="native"))

    assert executable.facts.engine == "native"
    assert executable.facts.segments == 0
    assert executable.facts.rejected == ()
    same(executable.run(FEEDS), plain(source, FEEDS))


def test_model_without_any_engine_node_runs_natively(workshop: Workshop, plain: RunPlainly, same: AssertSame) -> None:
    source = workshop.write("g (double[N] x) => (double[N] y) { y = Exp(x) }")
    feeds = {"x": np.linspace(0, 1, 5)}

    executable = prepare_and_open(source, OPTIONS)

    assert executable.facts.segments == 0
    same(executable.run(feeds), plain(source, feeds))


def test_request_that_engines_can_not_answer_is_answered_by_the_source(
    source: pathlib.Path, fallbacks: Callable[[Executable], list[str]]
) -> None:
    executable = prepare_and_open(source, OPTIONS)
    reasons = fallbacks(executable)

    assert executable.run({"x": np.full((2, 4), np.nan, np.float32)})["y"].shape == (2, 4)
    assert reasons == ["non_finite_input"]


def test_digits_are_recognized(digits: pathlib.Path, digits_test: Mapping[str, np.ndarray]) -> None:
    executable = prepare_and_open(digits, dataclasses.replace(OPTIONS, threads=1))

    answers = executable.run({"image": digits_test["image"]}, ["probabilities"])

    assert (answers["probabilities"].argmax(axis=1) == digits_test["label"].ravel()).mean() >= 0.98


def test_missing_model_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ModelFileError, match=r"gone\.onnx: can't be read"):
        prepare_and_open(tmp_path / "gone.onnx", OPTIONS)


def spoil_engines(path: pathlib.Path, most: int | None = None) -> None:
    proto = onnx.load(path)
    engines = (a for node in protobuf_walk.nodes(proto) for a in node.attribute if a.name == "engine")
    for attribute in itertools.islice(engines, most):
        attribute.t.raw_data = bytes(len(attribute.t.raw_data))
    onnx.save(proto, path)


def test_a_prepared_file_with_an_engine_that_can_not_be_loaded_runs_natively(
    source: pathlib.Path, tmp_path: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    (tmp_path / "prepared").mkdir()
    prepared = prepare_model(source, OPTIONS, None, tmp_path / "prepared")
    assert prepared.compiled is not None
    spoil_engines(prepared.compiled, most=1)

    executable = open_model(source, prepared=prepared)

    assert (executable.facts.segments, len(executable.facts.rejected)) == (0, 2)
    same(executable.run(FEEDS), plain(source, FEEDS))


def test_engines_that_may_not_run_are_built_again_from_the_nodes(
    source: pathlib.Path, workshop: Workshop, plain: RunPlainly, same: AssertSame, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = workshop.compile_file(source, native_ops=("Relu",))
    spoil_engines(compiled)

    executable = prepare_and_open(compiled, OPTIONS)

    facts = executable.facts
    assert (facts.segments, facts.engines_built, len(facts.rejected)) == (2, 2, 2)
    assert "its engines are built again on this machine" in caplog.text
    same(executable.run(FEEDS), plain(source, FEEDS))


def test_engines_that_can_not_be_built_again_leave_the_model_native(
    source: pathlib.Path, workshop: Workshop, plain: RunPlainly, same: AssertSame, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = workshop.compile_file(source, native_ops=("Relu",))
    spoil_engines(compiled)
    options = CompileOptions(engine="openvino", partition=PartitionOptions(native_ops=("Rleu",)))

    executable = prepare_and_open(compiled, options)

    assert executable.facts.segments == 0
    assert "they can't be built, so its nodes run natively" in caplog.text
    same(executable.run(FEEDS), plain(source, FEEDS))
