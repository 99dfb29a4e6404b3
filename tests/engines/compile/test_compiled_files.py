"""Several engines in one compiled file: the one that fits runs, and the file is as safe as one with a single engine."""

from __future__ import annotations

import errno
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from edited_models import attribute, edited, with_field
from model_texts import parse
from trtnode.engines.artifact.files import write_model
from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.compiled_files import listed_engines, merge_files, strip_file
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineError, OutputFileError, OverwriteError
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.errors import MergeError
from trtnode.partitioner.model.loading import load_model
from workshop import Workshop

GRAPH = "dense (float[N, 64] x) => (float[N, 64] y) { a = MatMul(x, w) b = Softsign(a) c = MatMul(b, v) y = Relu(c) }"
FEEDS = {"x": np.linspace(-1, 1, 192, dtype=np.float32).reshape(3, 64)}
ELSEWHERE = {"features": "another", "name": "another processor"}


def dense(seed: int) -> onnx.ModelProto:
    w, v = floats(2, 64, 64, seed=seed)
    return parse(GRAPH, w=w, v=v)


@pytest.fixture(scope="module")
def source(shared_workshop: Workshop) -> pathlib.Path:
    return shared_workshop.write(dense(0))


@pytest.fixture
def here(source: pathlib.Path, workshop: Workshop, tmp_path: pathlib.Path) -> pathlib.Path:
    """Built for this machine."""
    workshop.compile(source).save(tmp_path / "here.onnx")
    return tmp_path / "here.onnx"


@pytest.fixture
def elsewhere(here: pathlib.Path) -> pathlib.Path:
    """The same for another machine."""
    return edited(here, with_field(device=ELSEWHERE))


@pytest.fixture
def merged(here: pathlib.Path, elsewhere: pathlib.Path) -> pathlib.Path:
    """With the engine for here in second place."""
    path = here.with_name("merged.onnx")
    assert merge_files([elsewhere, here], path) == 2
    return path


def damaged(name: str) -> Callable[[onnx.ModelProto], None]:
    def change(proto: onnx.ModelProto) -> None:
        tensor = attribute(proto.graph.node[0], name).t
        tensor.raw_data = bytes([tensor.raw_data[0] ^ 1]) + tensor.raw_data[1:]

    return change


def test_the_engine_that_fits_runs_whatever_its_place(
    merged: pathlib.Path, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    executable = open_model(merged)

    assert (executable.facts.segments, executable.facts.rejected) == (1, ())
    same(executable.run(FEEDS), plain(source, FEEDS), 1e-3)
    assert np.array_equal(plain(merged, FEEDS)["y"], plain(source, FEEDS)["y"])


def test_nobody_reads_the_engines_that_do_not_run(merged: pathlib.Path) -> None:
    executable = open_model(edited(merged, damaged("engine")))

    assert (executable.facts.segments, executable.facts.rejected) == (1, ())


@pytest.mark.parametrize("part", ["engine.1", "engine_references.1"])
def test_a_damaged_engine_that_would_run_gives_way_to_its_nodes(
    part: str, merged: pathlib.Path, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    executable = open_model(edited(merged, damaged(part)))

    assert executable.facts.segments == 0
    assert "its bytes are damaged" in str(executable.facts.rejected)
    same(executable.run(FEEDS), plain(source, FEEDS))


def test_each_engine_is_listed_with_what_keeps_it_from_running(merged: pathlib.Path) -> None:
    first, second = listed_engines(load_model(merged), Trust())

    assert (first["backend"], first["built_for"]) == ("openvino", "another")
    assert "it was built for processor 'another'" in first["problem"]
    assert second["problem"] is None


def test_engines_that_are_there_already_are_not_added(merged: pathlib.Path, here: pathlib.Path) -> None:
    assert merge_files([merged, here], here.with_name("again.onnx")) == 2


def test_sidecars_go_into_the_merged_file(
    here: pathlib.Path, elsewhere: pathlib.Path, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    split = here.parent / "split"
    split.mkdir()
    write_model(onnx.load(here), split / "here.onnx", inline_limit_bytes=0)
    target = here.with_name("merged.onnx")

    merge_files([elsewhere, split / "here.onnx"], target)

    executable = open_model(target)
    assert executable.facts.segments == 1
    same(executable.run(FEEDS), plain(source, FEEDS), 1e-3)


def test_several_engines_go_to_sidecars_where_the_file_grows_too_large(merged: pathlib.Path) -> None:
    large = merged.parent / "large"
    large.mkdir()

    write_model(onnx.load(merged), large / "merged.onnx", inline_limit_bytes=0)

    names = {a.name for node in onnx.load(large / "merged.onnx").graph.node for a in node.attribute}
    assert {"engine_file", "engine_file.1"} <= names
    assert open_model(large / "merged.onnx").facts.segments == 1


def test_another_cut_is_refused_by_its_nodes_and_the_option_that_helps(
    here: pathlib.Path, source: pathlib.Path, workshop: Workshop
) -> None:
    other, target = here.with_name("other.onnx"), here.with_name("merged.onnx")
    workshop.compile(source, native_ops=("Relu",)).save(other)

    with pytest.raises(MergeError, match=r"here\.onnx and other\.onnx can't be merged: .*Relu:y.*--native-nodes 'Relu"):
        merge_files([here, other], target)

    assert not target.exists()


def test_other_forms_of_the_same_nodes_are_refused(here: pathlib.Path, elsewhere: pathlib.Path) -> None:
    def turn(proto: onnx.ModelProto) -> None:
        proto.functions[0].node[0].doc_string = "another"

    with pytest.raises(MergeError, match=r"their segments have other nodes\. Compile both with --no-optimize"):
        merge_files([here, edited(elsewhere, turn)], here.with_name("merged.onnx"))


def test_files_of_two_sources_are_refused(here: pathlib.Path, workshop: Workshop) -> None:
    other = here.with_name("other.onnx")
    workshop.compile(workshop.write(dense(1))).save(other)

    with pytest.raises(MergeError, match="compiled from two sources"):
        merge_files([here, other], here.with_name("merged.onnx"))


def test_a_file_without_engines_is_refused(here: pathlib.Path, source: pathlib.Path, workshop: Workshop) -> None:
    bare = here.with_name("bare.onnx")
    workshop.compile(source, engine="native").save(bare)

    with pytest.raises(MergeError, match="one of them has no engine"):
        merge_files([here, bare], here.with_name("merged.onnx"))
    with pytest.raises(EngineError, match="no node of it has an engine"):
        strip_file(bare, bare, keep=["openvino"], fallback=False)


def test_no_file_is_written_over_one_that_it_is_made_of(here: pathlib.Path, elsewhere: pathlib.Path) -> None:
    with pytest.raises(OverwriteError):
        merge_files([here, elsewhere], here)


def test_a_signature_covers_every_engine(merged: pathlib.Path, tmp_path: pathlib.Path) -> None:
    generate_key(tmp_path / "signer")
    trust = Trust.of([tmp_path / "signer.pub"], None)

    unsigned = open_model(merged, run=RunOptions(trust=trust)).facts.segments
    assert sign_model(merged, merged, tmp_path / "signer") == 2

    executable = open_model(merged, run=RunOptions(trust=trust))
    assert (unsigned, executable.facts.segments) == (0, 1)
    forged = edited(merged, lambda p: _rename(p, "envelope.1", device={"features": "another", "name": "y"}))
    assert open_model(forged, run=RunOptions(trust=trust)).facts.segments == 0


def _rename(proto: onnx.ModelProto, name: str, **fields: Any) -> None:
    envelope = attribute(proto.graph.node[0], name)
    envelope.s = json.dumps(json.loads(envelope.s) | fields).encode()


def test_engines_of_other_libraries_are_left_out(
    merged: pathlib.Path, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    both = edited(merged, lambda p: _rename(p, "envelope", backend="tensorrt-rtx"))

    left = strip_file(both, both, keep=["openvino"], fallback=False)

    executable = open_model(both)
    assert (left, executable.facts.segments) == (1, 1)
    same(executable.run(FEEDS), plain(source, FEEDS), 1e-3)
    with pytest.raises(EngineError, match="has no engine of sparse"):
        strip_file(both, both, keep=["sparse"], fallback=False)


def test_engines_alone_run_after_their_nodes_are_left_out(
    merged: pathlib.Path, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    assert strip_file(merged, merged, keep=[], fallback=True) == 2

    executable = open_model(merged)
    assert executable.facts.native_fallback is False
    assert not onnx.load(merged).functions
    same(executable.run(FEEDS), plain(source, FEEDS), 1e-3)


def test_a_full_disk_leaves_the_old_file_alone(
    here: pathlib.Path, elsewhere: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = here.with_name("merged.onnx")
    target.write_bytes(b"the file before")

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputFileError, match="No space left on device"):
        merge_files([here, elsewhere], target)

    assert target.read_bytes() == b"the file before"
