"""Other servers of the same ONNX file, each in its own environment; README.md says how to install them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Iterator

from benchmarks.serving.servers import HOST, BenchmarkModel, Endpoint, free_address, process
from trtnode.bench.server_process import free_port

MODELS = pathlib.Path(__file__).parent / "peer_models"

RunServer = Callable[[pathlib.Path, BenchmarkModel, pathlib.Path], contextlib.AbstractContextManager[Endpoint]]
"""Runs the server while the context lasts. Takes its program, the model, and a folder for files."""

TRITON_CONFIG = """\
name: "{model}"
backend: "python"
max_batch_size: 32
input [{{ name: "x", data_type: TYPE_FP32, dims: [{dims}] }}]
output [{{ name: "y", data_type: TYPE_FP32, dims: [-1] }}]
instance_group [{{ kind: KIND_CPU, count: 1 }}]
dynamic_batching {{ }}
parameters {{ key: "file", value: {{ string_value: "{file}" }} }}
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeerServer:
    """A server to compare with.

    Attributes:
        name: For tables.
        option: The option that names its program.
        variable: The environment variable that replaces the option.
        program: Description of the program.
        install: The shell command that installs it.
        run: Runs the server.
    """

    name: str
    option: str
    variable: str
    program: str
    install: str
    run: RunServer

    @property
    def missing(self) -> str:
        """Reason in a row if the peer isn't installed."""
        return f"{self.name} is not installed: {self.install}; then give {self.option} ({self.program})"


@contextlib.contextmanager
def _mlserver(python: pathlib.Path, model: BenchmarkModel, folder: pathlib.Path) -> Iterator[Endpoint]:
    home, address = folder / "mlserver", free_address()
    home.mkdir()
    shutil.copy(MODELS / "mlserver_model.py", home)
    settings = {
        "host": HOST,
        "grpc_port": int(address.rpartition(":")[2]),
        "http_port": free_port(),
        "metrics_port": free_port(),
        "parallel_workers": 0,
    }
    entry = {
        "name": model.name,
        "implementation": "mlserver_model.OnnxMLServerModel",
        "parameters": {"uri": str(model.file.resolve())},
    }
    (home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (home / "model-settings.json").write_text(json.dumps(entry), encoding="utf-8")
    command = [str(python.with_name("mlserver")), "start", str(home)]
    with process("MLServer", command, address, folder, {**os.environ, "PYTHONPATH": str(home)}) as number:
        yield Endpoint(address=address, model=model.name, shape=model.shape, process=number)


@contextlib.contextmanager
def _kserve(python: pathlib.Path, model: BenchmarkModel, folder: pathlib.Path) -> Iterator[Endpoint]:
    address = free_address()
    ports = [address.rpartition(":")[2], str(free_port())]
    command = [str(python), str(MODELS / "kserve_model.py"), str(model.file.resolve()), model.name, *ports]
    with process("KServe", command, address, folder, _without_python_path()) as number:
        yield Endpoint(address=address, model=model.name, shape=model.shape, process=number)


@contextlib.contextmanager
def _triton(python: pathlib.Path, model: BenchmarkModel, folder: pathlib.Path) -> Iterator[Endpoint]:
    """Triton's own server, from the wheel of nvidia-pytriton, with ONNX Runtime in its Python backend."""
    packages, libraries, version = _interpreter_paths(python)
    triton = packages / "pytriton" / "tritonserver"
    backends = folder / "triton_backends"
    shutil.copytree(triton / "backends", backends)
    shutil.copy(triton / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python")
    home = folder / "triton_models" / model.name
    (home / "1").mkdir(parents=True)
    shutil.copy(MODELS / "triton_model.py", home / "1" / "model.py")
    dims = ", ".join(map(str, model.shape[1:]))
    config = TRITON_CONFIG.format(model=model.name, dims=dims, file=model.file.resolve())
    (home / "config.pbtxt").write_text(config, encoding="utf-8")
    address = free_address()
    command = [
        str(triton / "bin" / "tritonserver"),
        f"--model-repository={home.parent}",
        f"--backend-directory={backends}",
        *(f"--{port}-address={HOST}" for port in ("grpc", "http", "metrics")),
        f"--grpc-port={address.rpartition(':')[2]}",
        *(f"--{port}-port={free_port()}" for port in ("http", "metrics")),
        "--allow-gpu-metrics=false",
    ]
    environment = {
        **_without_python_path(),
        "LD_LIBRARY_PATH": f"{libraries}:{packages / 'nvidia_pytriton.libs'}",
        "PATH": f"{python.parent}:{os.environ.get('PATH', '')}",
    }
    with process("Triton", command, address, folder, environment) as number:
        yield Endpoint(address=address, model=model.name, shape=model.shape, batched=True, process=number)


def _interpreter_paths(python: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path, str]:
    """Return the folders of an interpreter's packages and shared library, and its version."""
    script = (
        "import json, sys, sysconfig; print(json.dumps([sysconfig.get_path('purelib'), "
        "sysconfig.get_config_var('LIBDIR'), '%d.%d' % sys.version_info[:2]]))"
    )
    answer = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
    packages, libraries, version = json.loads(answer.stdout)
    return pathlib.Path(packages), pathlib.Path(libraries), version


def _without_python_path() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


TRITON = PeerServer(
    name="Triton + onnxruntime",
    option="--triton-python",
    variable="TRTNODE_TRITON_PYTHON",
    program="the Python of that environment",
    install="python3.11 -m venv DIR && DIR/bin/pip install nvidia-pytriton==0.7.0 'numpy<2' onnxruntime",
    run=_triton,
)
MLSERVER = PeerServer(
    name="MLServer",
    option="--mlserver-python",
    variable="TRTNODE_MLSERVER_PYTHON",
    program="the Python of that environment",
    install="python3.11 -m venv DIR && DIR/bin/pip install mlserver==1.7.1 onnxruntime",
    run=_mlserver,
)
KSERVE = PeerServer(
    name="KServe",
    option="--kserve-python",
    variable="TRTNODE_KSERVE_PYTHON",
    program="the Python of that environment",
    install="python3.11 -m venv DIR && DIR/bin/pip install kserve==0.21.0 onnxruntime",
    run=_kserve,
)
PEERS = (TRITON, MLSERVER, KSERVE)
