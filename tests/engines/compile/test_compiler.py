"""The file that a compilation writes, and the engines that it accepts."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import onnx
import pytest

from chain import FEEDS
from comparison import AssertSame, RunPlainly
from trtnode.engines.artifact.cache import builder_version
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.envelope import current_platform
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import AlreadyCompiledError, ModelLoadError, UnknownBackendError
from trtnode.engines.openvino.library import ov
from trtnode.partitioner.errors import UnknownOptionError
from workshop import Workshop


@pytest.fixture(scope="module")
def compiled(source: pathlib.Path, shared_workshop: Workshop) -> CompiledModel:
    return shared_workshop.compile(source, native_ops=("Relu",))


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: a.t.raw_data if a.HasField("t") else a.s for a in node.attribute}


def test_compiled_model_is_valid_onnx(compiled: CompiledModel, source: pathlib.Path) -> None:
    onnx.checker.check_model(onnx.load(source), full_check=True)

    onnx.checker.check_model(compiled.model, full_check=True)

    assert compiled.model.ir_version >= 10
    assert {(o.domain, o.version) for o in compiled.model.opset_import} == {("", 21), ("ai.trtnode", 1)}


def test_envelope_says_what_the_engine_is(compiled: CompiledModel) -> None:
    content = attributes(compiled.model.graph.node[0])
    device = get_backend("openvino").device()

    envelope = json.loads(content["envelope"])

    assert envelope == {
        "format_version": 2,
        "backend": "openvino",
        "backend_version": ov.get_version(),
        "platform": current_platform(),
        "device": {"features": device.features, "name": device.name},
        "precision_asked": "fp32",
        "precision_effective": "fp32",
        "options": {
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
            "EMPTY": "[[[0, 0]]]",
            "INFERENCE_PRECISION_HINT": "f32",
            "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY",
        },
        "calibration_sha256": "",
        "node_precisions": {},
        "profiles": [],
        "inputs": [{"name": "x", "dtype": "FLOAT", "shape": ["N", 4]}],
        "outputs": [{"name": "e", "dtype": "FLOAT", "shape": ["N", 4]}],
        "engine_sha256": hashlib.sha256(content["engine"]).hexdigest(),
        "segment_sha256": envelope["segment_sha256"],
        "builder_version": builder_version(),
        "signature": None,
    }
    assert len(envelope["segment_sha256"]) == 64


def test_metadata_says_where_the_model_comes_from(compiled: CompiledModel, source: pathlib.Path) -> None:
    properties = {p.key: p.value for p in compiled.model.metadata_props}

    report = json.loads(properties["trtnode.report"])

    assert properties["trtnode.version"] == builder_version()
    assert properties["trtnode.source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert report == compiled.report.as_json()
    assert report["model"] == source.name
    assert [s["nodes"] for s in report["segments"]] == [["Exp:e"], ["Neg:y"]]
    assert [(n["node"], n["code"]) for n in report["native"]] == [("Relu:r", "USER_EXCLUDED")]
    assert report["seconds"].keys() >= {"infer_shapes", "label", "cut", "build"}


def test_all_native_outcome_is_the_source(
    workshop: Workshop, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    compiled = workshop.compile(source, engine="native")

    assert compiled.engine == "native"
    assert compiled.engine_bytes == 0
    assert compiled.model.graph == onnx.load(source).graph
    assert {n.code for n in compiled.report.native} == {"USER_EXCLUDED"}
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))


def test_compiled_model_is_not_compiled_again(compiled: CompiledModel, workshop: Workshop) -> None:
    path = workshop.write(compiled.model)

    with pytest.raises(AlreadyCompiledError, match=r"this model is compiled already\. Name the model that it was"):
        workshop.compile(path)


def test_model_that_onnxruntime_refuses_is_an_error(workshop: Workshop) -> None:
    source = workshop.write("g (float[4] x) => (float[4] y) { y = nowhere.Nothing(x) }", domains=', "nowhere": 1')

    with pytest.raises(ModelLoadError, match="onnxruntime can't load this model"):
        workshop.compile(source)


def test_unknown_engine_is_an_error_that_lists_the_known_ones(workshop: Workshop, source: pathlib.Path) -> None:
    known = "auto, openvino, sparse, tensorrt, tensorrt-rtx, native"

    with pytest.raises(UnknownBackendError, match=rf"no engine 'abacus'\. Use one of: {known}"):
        workshop.compile(source, engine="abacus")


def test_option_that_names_nothing_is_an_error(workshop: Workshop, source: pathlib.Path) -> None:
    with pytest.raises(UnknownOptionError, match="native_ops: 'Rleu'"):
        workshop.compile(source, native_ops=("Rleu",))


def test_without_a_worker_a_temporary_one_is_used(source: pathlib.Path) -> None:
    compiled = compile_model(source, CompileOptions())

    assert compiled.engines_built == 1


SCRIPT = """
import os, pathlib, sys, time
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model

moment, source, target = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])

def pause(name):
    if name == moment:
        print(name, child._process.pid if child._process else 0, flush=True)
        time.sleep(100)

class Slow(SubprocessWorker):
    def call(self, function, *args, **kwargs):
        result = super().call(function, *args, **kwargs)
        pause(function.__name__)
        return result

def fsync(descriptor):
    real(descriptor)
    if any(entry.name.startswith("." + target.name) for entry in target.parent.iterdir()):
        pause("write")

real, os.fsync = os.fsync, fsync
child = Slow()
compile_model(source, CompileOptions(), worker=child).save(target)
pause("done")
"""


@pytest.mark.parametrize("moment", ["build", "write"])
def test_killed_compile_leaves_no_half_file(
    moment: str, workshop: Workshop, source: pathlib.Path, plain: RunPlainly, same: AssertSame
) -> None:
    folder = workshop.folder / "out"
    folder.mkdir()
    target = folder / "compiled.onnx"
    target.write_bytes(b"the file before")
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, moment, str(source), str(target)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(workshop.folder)},
    )
    assert process.stdout is not None
    name, child = process.stdout.readline().split()
    assert name == moment

    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()

    assert target.read_bytes() == b"the file before"
    assert not [p for p in folder.iterdir() if p.suffix == ".onnx" and p != target]
    assert ended(int(child))
    workshop.compile(source).save(target)
    same(open_model(target).run(FEEDS), plain(source, FEEDS))


def ended(process_id: int) -> bool:
    """Return whether a process is gone within some seconds: nobody else would stop it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        stat = pathlib.Path(f"/proc/{process_id}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False
