"""Memory and processor time of the commands, beside those of OpenVINO and ONNX Runtime in processes of their own."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

from benchmarks.modern.networks import write_network
from benchmarks.modern.processes import measure, memory_mb
from trtnode.bench.server_process import ServedFile, inference_call, running_server
from trtnode.engines.inputs.samples import Feeds

SETTINGS = '{"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}'
"""As this product's own builds."""

BUILD = f"""
import openvino, pathlib, sys
core = openvino.Core()
exported = core.compile_model(core.read_model(sys.argv[1]), "CPU", {SETTINGS}).export_model()
with open(sys.argv[2], "wb") as file: file.write(exported.getbuffer())
"""
SESSION = "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"

IMPORT = f"""
import mmap, numpy, openvino, sys
with open(sys.argv[1], "rb") as file: mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
blob = openvino.Tensor(numpy.frombuffer(mapped, numpy.uint8), shared_memory=True)
request = openvino.Core().import_model(blob, "CPU", {SETTINGS}).create_infer_request()
feeds = dict(numpy.load(sys.argv[2]))
request.infer({{name: feeds[name] for port in request.model_inputs for name in port.names & feeds.keys()}})
print("ran", flush=True)
sys.stdin.read()
"""
"""Ends when its stdin does; till then its memory can be read."""

TOKENS, PAST = 16, 16
SETTLED_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Figures of one model, in MB and seconds; sums over all processes of a command.

    Attributes:
        name: Of the model.
        weights_mb: Size of its files.
        floor_mb: Peak of a process in which OpenVINO reads, compiles and exports the model.
        compile_mb: Peak of ``trtnode compile --no-measure --all-engines``.
        default_mb: Peak of ``trtnode compile`` with all defaults, which runs both forms of the model to choose one.
        floor_s: Processor time of that process of OpenVINO and of one that makes ONNX Runtime's session.
        compile_s: Processor time of ``trtnode compile --no-measure --all-engines``.
        default_s: That of ``trtnode compile`` with all defaults.
        after_s: Time between the line "Wrote ..." of ``trtnode compile`` with all defaults and its end.
        import_mb: A process that imports OpenVINO's blob from a mapped file and has answered a request.
        serve_mb: The server that has loaded the compiled file and answered a request.
        session_mb: Peak of ONNX Runtime's session.
        explain_mb: Peak of ``trtnode explain``.
        session_s: Processor time of ONNX Runtime's session.
        explain_s: Processor time of the command.
    """

    name: str
    weights_mb: float
    floor_mb: float
    compile_mb: float
    default_mb: float
    floor_s: float
    compile_s: float
    default_s: float
    after_s: float
    import_mb: float
    serve_mb: float
    session_mb: float
    explain_mb: float
    session_s: float
    explain_s: float

    @property
    def misses(self) -> list[str]:
        """Return the bars that it misses."""
        bars = {
            "memory of compile": self.compile_mb <= self.floor_mb + self.weights_mb + 200,
            "memory of compile by default": self.default_mb <= self.floor_mb + 2 * self.weights_mb + 200,
            "time of compile": self.compile_s <= 3 * self.floor_s,
            "time of compile by default": self.default_s <= 5 * self.floor_s,
            "memory of serve": self.serve_mb <= 1.1 * self.import_mb + 150,
            "after the file is written": self.after_s <= 3,
            "memory of explain": self.explain_mb <= 250 or self.name != "dlrm",
            "time of explain": self.explain_s <= 3 * self.session_s + 1 or self.name != "dlrm",
        }
        return [bar for bar, held in bars.items() if not held]


def measure_memory(name: str, folder: pathlib.Path) -> MemoryRow:
    """Measure one model; one command runs at a time, each with an empty cache."""
    path, request = write_network(name, folder)
    blob, compiled, feeds = (path.with_name(file) for file in ("blob", "compiled.onnx", "feeds.npz"))
    inputs = request(TOKENS, PAST)
    np.savez(feeds, allow_pickle=False, **inputs)
    trtnode = [sys.executable, "-m", "trtnode"]
    compile_ = [*trtnode, "compile", str(path), "-o", str(compiled), "--no-cache"]
    floor = measure([sys.executable, "-c", BUILD, str(path), str(blob)])
    session = measure([sys.executable, "-c", SESSION, str(path)])
    explained = measure([*trtnode, "explain", str(path), "--no-cache"])
    measured = measure(compile_, mark="Wrote")
    made = measure([*compile_, "--no-measure", "--all-engines"])
    return MemoryRow(
        name=name,
        weights_mb=sum(file.stat().st_size for file in path.parent.glob("model.onnx*")) / 2**20,
        floor_mb=floor.peak_mb,
        compile_mb=made.peak_mb,
        default_mb=measured.peak_mb,
        floor_s=floor.processor_s + session.processor_s,
        compile_s=made.processor_s,
        default_s=measured.processor_s,
        after_s=measured.after_s,
        import_mb=_imported_mb(blob, feeds),
        serve_mb=_serving_mb(compiled, inputs),
        session_mb=session.peak_mb,
        explain_mb=explained.peak_mb,
        session_s=session.processor_s,
        explain_s=explained.processor_s,
    )


def _imported_mb(blob: pathlib.Path, feeds: pathlib.Path) -> float:
    command = [sys.executable, "-c", IMPORT, str(blob), str(feeds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        memory = memory_mb(child.pid)
        child.stdin.close()
    return memory


def _serving_mb(compiled: pathlib.Path, feeds: Feeds) -> float:
    served = {"model": ServedFile(file=compiled, engine="openvino")}
    with running_server(served, compiled.parent, None) as channel:
        inference_call(channel, "model", feeds)()
        time.sleep(SETTLED_S)  # till the process that has loaded the model first has ended
        return memory_mb(os.getpid()) - memory_mb(os.getpid(), children=False)
