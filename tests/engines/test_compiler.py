"""What a compilation writes, and which engines it lets in."""

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

import numpy as np
import onnx
import pytest

from engines import CompileOptions, EngineCache, ModelLoadError, compile_model, load_executable, partition_model
from engines.building import builder_version
from engines.envelope import current_platform
from engines.errors import AlreadyCompiledError, EngineError, InvalidInputError, UnknownBackendError, WorkerError
from engines.openvino_backend import ov
from engines.registry import get_backend
from partitioner import ModelFileError, PartitionOptions, ReasonCode, UnknownOptionError

GRAPH = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) r = Relu(e) y = Neg(r) }"
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}


@pytest.fixture(scope="module")
def source(shared_workshop: Any) -> pathlib.Path:
    return shared_workshop.write(GRAPH)


@pytest.fixture(scope="module")
def compiled(source: pathlib.Path, shared_workshop: Any) -> Any:
    return shared_workshop.compile(source, native_ops=("Relu",))


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: a.t.raw_data if a.HasField("t") else a.s for a in node.attribute}


def test_compiled_model_is_valid_onnx(compiled: Any, source: pathlib.Path) -> None:
    onnx.checker.check_model(onnx.load(source), full_check=True)

    onnx.checker.check_model(compiled.model, full_check=True)

    assert compiled.model.ir_version >= 10
    assert {(o.domain, o.version) for o in compiled.model.opset_import} == {("", 21), ("ai.trtnode", 1)}


def test_each_segment_is_a_node_and_a_function(compiled: Any) -> None:
    nodes = [(n.domain, n.op_type, n.overload) for n in compiled.model.graph.node]
    functions = [(f.domain, f.name, f.overload) for f in compiled.model.functions]

    assert nodes == [
        ("ai.trtnode", "TrtNode", "segment_0"),
        ("", "Relu", ""),
        ("ai.trtnode", "TrtNode", "segment_1"),
    ]
    assert functions == [nodes[0], nodes[2]]


def test_envelope_says_what_the_engine_is(compiled: Any) -> None:
    content = attributes(compiled.model.graph.node[0])
    device = get_backend("openvino").device()

    envelope = json.loads(content["envelope"])

    assert envelope == {
        "format_version": 1,
        "backend": "openvino",
        "backend_version": ov.get_version(),
        "platform": current_platform(),
        "device": {"features": device.features, "name": device.name},
        "precision_asked": "fp32",
        "precision_effective": "fp32",
        "options": {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY"},
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


def test_metadata_says_where_the_model_comes_from(compiled: Any, source: pathlib.Path) -> None:
    properties = {p.key: p.value for p in compiled.model.metadata_props}

    report = json.loads(properties["trtnode.report"])

    assert properties["trtnode.version"] == builder_version()
    assert properties["trtnode.source_sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert report == compiled.report.as_json()
    assert report["model"] == source.name
    assert [s["nodes"] for s in report["segments"]] == [["Exp:e"], ["Neg:y"]]
    assert [(n["node"], n["code"]) for n in report["native"]] == [("Relu:r", "USER_EXCLUDED")]
    assert report["seconds"].keys() >= {"infer_shapes", "label", "cut", "build"}


def test_outcome_counts_engines(compiled: Any) -> None:
    engines = [attributes(n)["engine"] for n in compiled.model.graph.node if n.op_type == "TrtNode"]

    assert (compiled.engine, compiled.precision_effective) == ("openvino", "fp32")
    assert (compiled.engines_built, compiled.engines_cached) == (2, 0)
    assert compiled.engine_bytes == sum(map(len, engines))


def test_metadata_of_the_source_is_kept(workshop: Any) -> None:
    proto = onnx.load(workshop.write(GRAPH))
    proto.metadata_props.add(key="author", value="someone")
    source = workshop.write(proto)

    for engine in ("openvino", "native"):
        properties = {p.key: p.value for p in workshop.compile(source, engine=engine).model.metadata_props}
        assert properties["author"] == "someone"
        assert "trtnode.report" in properties


def test_all_native_outcome_is_the_source(workshop: Any, source: pathlib.Path, plain: Any, same: Any) -> None:
    compiled = workshop.compile(source, engine="native")

    assert compiled.engine == "native"
    assert compiled.engine_bytes == 0
    assert compiled.model.graph == onnx.load(source).graph
    assert {n.code for n in compiled.report.native} == {"USER_EXCLUDED"}
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))


def test_partition_alone_builds_nothing(source: pathlib.Path) -> None:
    partition, report = partition_model(source, CompileOptions(partition=PartitionOptions(native_ops=("Relu",))))

    assert len(partition.segments) == 2
    assert report.as_json()["seconds"].keys() == {"infer_shapes", "label", "cut"}


def test_compiled_model_is_not_compiled_again(compiled: Any, workshop: Any) -> None:
    path = workshop.write(compiled.model)

    with pytest.raises(AlreadyCompiledError, match=r"this model is compiled already\. Compile the model that it was"):
        workshop.compile(path)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        pytest.param(None, ModelFileError, "can't be read", id="missing"),
        pytest.param(b"not onnx at all", ModelFileError, "not an ONNX", id="no-onnx"),
        pytest.param(b"", ModelFileError, "not an ONNX model", id="empty"),
    ],
)
def test_file_that_is_no_model_is_an_error(content: bytes | None, error: Any, message: str, workshop: Any) -> None:
    path = workshop.folder / "model.onnx"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(error, match=message):
        workshop.compile(path)


def test_model_that_onnxruntime_refuses_is_an_error(workshop: Any) -> None:
    source = workshop.write("g (float[4] x) => (float[4] y) { y = nowhere.Nothing(x) }", domains=', "nowhere": 1')

    with pytest.raises(ModelLoadError, match="onnxruntime can't load this model"):
        workshop.compile(source)


def test_unknown_engine_is_an_error_that_lists_the_known_ones(workshop: Any, source: pathlib.Path) -> None:
    with pytest.raises(UnknownBackendError, match=r"no engine 'abacus'\. Use one of: auto, tensorrt, openvino, native"):
        workshop.compile(source, engine="abacus")


def test_option_that_names_nothing_is_an_error(workshop: Any, source: pathlib.Path) -> None:
    with pytest.raises(UnknownOptionError, match="native_ops: 'Rleu'"):
        workshop.compile(source, native_ops=("Rleu",))


def test_without_a_worker_a_temporary_one_is_used(source: pathlib.Path) -> None:
    compiled = compile_model(source, CompileOptions())

    assert compiled.engines_built == 1


# Engines that do not stand the check


def test_engine_that_computes_wrong_is_left_out_and_others_stay(
    unreliable: Any, in_process: Any, workshop: Any, source: pathlib.Path, plain: Any, same: Any
) -> None:
    unreliable.miscomputes = ("Exp",)

    compiled = workshop.compile(source, engine="unreliable", native_ops=("Relu",), worker=in_process)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Neg"]]
    (refused,) = [n for n in compiled.report.native if n.op_type == "Exp"]
    assert refused.code == ReasonCode.INACCURATE
    assert "'e' is not what native execution gives: 8 of 8 elements differ, by up to 1" in refused.detail
    path = workshop.write(compiled.model)
    same(load_executable(path).run(FEEDS), plain(source, FEEDS))
    same(plain(path, FEEDS), plain(source, FEEDS))


def test_engine_that_is_refused_is_left_out_and_others_stay(
    unreliable: Any, in_process: Any, workshop: Any, source: pathlib.Path, plain: Any, same: Any
) -> None:
    unreliable.refuses = ("Neg",)

    compiled = workshop.compile(source, engine="unreliable", native_ops=("Relu",), worker=in_process)

    assert [[n.op_type for n in s.nodes] for s in compiled.report.segments] == [["Exp"]]
    assert [(n.op_type, n.code, n.detail) for n in compiled.report.native if n.op_type == "Neg"] == [
        ("Neg", ReasonCode.BUILD_FAILED, "Neg is too hard.")
    ]
    same(load_executable(workshop.write(compiled.model)).run(FEEDS), plain(source, FEEDS))


def test_model_whose_engines_all_fail_is_native(
    unreliable: Any, in_process: Any, workshop: Any, source: pathlib.Path, plain: Any, same: Any
) -> None:
    unreliable.refuses = ("Neg",)
    unreliable.miscomputes = ("Exp",)

    compiled = workshop.compile(source, engine="unreliable", native_ops=("Relu",), worker=in_process)

    assert compiled.engine == "native"
    assert compiled.report.segments == ()
    assert {n.op_type: n.code for n in compiled.report.native} == {
        "Exp": ReasonCode.INACCURATE,
        "Relu": ReasonCode.USER_EXCLUDED,
        "Neg": ReasonCode.BUILD_FAILED,
    }
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))


class CrashingWorker:
    """Stands for a child that dies whenever it runs one of the functions named."""

    def __init__(self, inner: Any, *functions: str) -> None:
        self.inner = inner
        self.functions = list(functions)

    def call(self, function: Any, timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ in self.functions:
            raise WorkerError(f"The process that ran {function.__name__} crashed (exit code -11).")
        return self.inner.call(function, timeout_s, *args, **kwargs)


@pytest.mark.parametrize(
    ("function", "code"),
    [
        pytest.param("build", ReasonCode.BUILD_FAILED, id="build"),
        pytest.param("check_segments", ReasonCode.INACCURATE, id="check-of-segments"),
        pytest.param("check_compiled", ReasonCode.INACCURATE, id="check-of-the-whole"),
    ],
)
def test_crash_of_the_child_costs_engines_only_this_once(
    function: str, code: ReasonCode, workshop: Any, source: pathlib.Path, in_process: Any, plain: Any, same: Any
) -> None:
    cache = EngineCache(workshop.folder / "cache", 2**20)
    crashing = CrashingWorker(in_process, function)

    compiled = workshop.compile(source, engine="reference", cache=cache, worker=crashing)

    assert {n.code for n in compiled.report.native} == {code}
    assert all("crashed (exit code -11)" in n.detail for n in compiled.report.native)
    same(plain(workshop.write(compiled.model), FEEDS), plain(source, FEEDS))
    assert workshop.compile(source, engine="reference", cache=cache, worker=in_process).report.segments


def test_crash_of_the_first_load_is_an_error(workshop: Any, source: pathlib.Path, in_process: Any) -> None:
    with pytest.raises(WorkerError, match="output_types crashed"):
        workshop.compile(source, engine="native", worker=CrashingWorker(in_process, "output_types"))


# Inputs to check with


ODD = "g (float[N] x) => (float[7,11] y) <int64[2] s = {7, 11}> { e = Exp(x) y = Reshape(e, s) }"


def test_model_that_no_generated_input_fits_runs_natively(workshop: Any) -> None:
    compiled = workshop.compile(workshop.write(ODD))

    assert {n.code for n in compiled.report.native} == {ReasonCode.INACCURATE}
    assert "Give inputs that it runs on" in compiled.report.native[0].detail


def test_given_inputs_are_used_even_if_it_was_refused_without_them(workshop: Any) -> None:
    source = workshop.write(ODD)
    cache = EngineCache(workshop.folder / "cache", 2**20)
    np.savez(workshop.folder / "samples.npz", x=np.zeros(77, np.float32))
    workshop.compile(source, cache=cache)

    compiled = workshop.compile(source, cache=cache, samples=workshop.folder / "samples.npz")

    assert len(compiled.report.segments) == 1


def test_engines_of_the_cache_are_checked_on_given_inputs_as_well(
    workshop: Any, source: pathlib.Path, in_process: Any
) -> None:
    cache = EngineCache(workshop.folder / "cache", 2**20)
    np.savez(workshop.folder / "samples.npz", **FEEDS)
    workshop.compile(source, engine="reference", cache=cache, worker=in_process)
    crashing = CrashingWorker(in_process, "check_segments")

    given = workshop.compile(
        source, engine="reference", cache=cache, worker=crashing, samples=workshop.folder / "samples.npz"
    )
    again = workshop.compile(source, engine="reference", cache=cache, worker=crashing)

    assert not given.report.segments
    assert again.report.segments
    assert again.engines_built == 0


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        pytest.param({"x": np.zeros((2, 5), np.float32)}, "Input 'x' must be float32", id="shape"),
        pytest.param({"x": np.zeros((2, 4))}, "Input 'x' must be float32", id="dtype"),
        pytest.param({}, "Input 'x' is missing", id="missing"),
        pytest.param({"z": FEEDS["x"]}, "Input 'x' is missing", id="another"),
    ],
)
def test_given_inputs_that_do_not_fit_are_an_error(
    samples: dict[str, np.ndarray], message: str, workshop: Any, source: pathlib.Path, in_process: Any
) -> None:
    path = workshop.folder / "samples.npz"
    np.savez(path, **samples)

    with pytest.raises(InvalidInputError, match=f"{path}: {message}"):
        workshop.compile(source, engine="reference", samples=path, worker=in_process)


def test_missing_file_of_inputs_is_an_error(workshop: Any, source: pathlib.Path) -> None:
    with pytest.raises(EngineError, match=r"gone\.npz: there is no such file"):
        workshop.compile(source, samples=workshop.folder / "gone.npz")


# A compile that dies


SCRIPT = """
import os, pathlib, sys, time
from engines import CompileOptions, Worker, compile_model, compiler, files, worker

moment, source, target = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])

def pause(name):
    if name == moment:
        print(name, child._process.pid if child._process else 0, flush=True)
        time.sleep(100)

class Slow(Worker):
    def call(self, function, *args):
        result = super().call(function, *args)
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


@pytest.mark.parametrize("moment", ["build", "check_compiled", "write"])
def test_killed_compile_leaves_no_half_file(
    moment: str, workshop: Any, source: pathlib.Path, plain: Any, same: Any
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
    same(load_executable(target).run(FEEDS), plain(source, FEEDS))


def ended(process_id: int) -> bool:
    """Whether a process is gone within some seconds: nobody else would stop it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        stat = pathlib.Path(f"/proc/{process_id}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False
