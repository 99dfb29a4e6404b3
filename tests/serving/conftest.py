from __future__ import annotations

import dataclasses
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir
import pytest
import tritonclient.grpc as triton
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

from trtnode.engines.model_facts import ModelFacts
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.models.servable import Loader
from trtnode.serving.process.single_process import Server

READY_S = 240

Eventually = Callable[[Callable[[], bool]], None]
"""Waits until a condition holds, or fails."""


@dataclasses.dataclass
class Running:
    """A started server and a client of it."""

    server: Server
    client: triton.InferenceServerClient

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.server.http_port}"


StartFake = Callable[..., Running]
"""Starts a server whose only model is the fake one."""


class FakeExecutable:
    """Adds 1 to ``x``; a test can hold it back or make it fail."""

    def __init__(self) -> None:
        self.inputs: tuple[TensorSpec, ...] = (spec("x", onnx_ir.DataType.FLOAT, (None,)),)
        self.outputs: tuple[TensorSpec, ...] = (spec("y", onnx_ir.DataType.FLOAT, (None,)),)
        self.facts = ModelFacts(native_nodes=1)
        self.on_fallback: Callable[[str], None] = lambda reason: None
        self.on_loss: Callable[[str], None] = lambda reason: None
        self.warmed_up = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Semaphore(0)
        self.closed = False
        self.runs = self.running = self.most_at_once = 0

    def keep_kernels(self) -> None:
        self.warmed_up = self.runs

    def run(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        self.runs += 1
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        self.started.release()
        assert self.gate.wait(120)
        self.running -= 1
        if self.error is not None:
            raise self.error
        return {"y": feeds["x"] + np.float32(1)}

    def needs_native(self, feeds: Mapping[str, np.ndarray]) -> bool:
        return False

    def run_checked(
        self, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None, times: Any = None
    ) -> dict[str, np.ndarray]:
        return self.run(feeds, outputs, times)

    def close(self) -> None:
        self.closed = True


def spec(
    name: str, dtype: onnx_ir.DataType | None, shape: tuple[int | str | None, ...] | None, **more: Any
) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape, **more)


def given(name: str, array: np.ndarray) -> triton.InferInput:
    """Return an input that holds an array."""
    kind = "BF16" if array.dtype == ml_dtypes.bfloat16 else triton.np_to_triton_dtype(array.dtype)
    one = triton.InferInput(name, array.shape, kind)
    one.set_data_from_numpy(array)
    return one


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    """Return status and message of a call that fails."""
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.status().removeprefix("StatusCode."), caught.value.message()


@pytest.fixture
def fake() -> FakeExecutable:
    return FakeExecutable()


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of small models: ``two`` (two inputs, three outputs), ``text`` and one identity an element type."""
    folder = tmp_path_factory.mktemp("models")
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Mul", ["a", "b"], ["product"]),
        helper.make_node("Shape", ["a"], ["size"]),
    ]
    inputs = [value("a", TensorProto.FLOAT, ["n", 3]), value("b", TensorProto.FLOAT, ["n", 3])]
    outputs = [
        value("sum", TensorProto.FLOAT, ["n", 3]),
        value("product", TensorProto.FLOAT, ["n", 3]),
        value("size", TensorProto.INT64, [2]),
    ]
    save(folder / "two.onnx", nodes, inputs, outputs)
    for name in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FLOAT16",
                 "BFLOAT16", "FLOAT", "DOUBLE", "STRING"):  # fmt: skip
        element = getattr(TensorProto, name)
        node = helper.make_node("Identity", ["x"], ["y"])
        save(folder / f"{name}.onnx", [node], [value("x", element, ["n", "m"])], [value("y", element, ["n", "m"])])
    return folder


def save(path: pathlib.Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> None:
    graph = helper.make_graph(nodes, path.stem, inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class Starter:
    """Starts servers on free ports from the text of their ``models:`` list, and stops them."""

    def __init__(self, folder: pathlib.Path, cache: pathlib.Path) -> None:
        self._folder = folder
        self._cache = cache
        self._running: list[Running] = []

    def __call__(
        self,
        models: str,
        *,
        ports: str = "grpc: {port: 0}, http: {port: 0}",
        server: str = "",
        cache: str | None = None,
        loader: Loader | None = None,
        wait: bool = True,
    ) -> Running:
        (self._folder / "fake.onnx").touch()
        path = self._folder / f"servable{len(self._running)}.yaml"
        path.write_text(
            f"server: {{{ports}, {server}}}\ncache: {cache or f'{{dir: {self._cache}}}'}\nmodels:\n{models}"
        )
        config = load_config(path)
        built = Server(config, loader or engine_loader(config))
        built.start()
        one = Running(built, triton.InferenceServerClient(f"127.0.0.1:{built.port}"))
        self._running.append(one)
        if wait:
            assert built.wait_ready(READY_S), built.failure
        return one

    def close(self) -> None:
        for one in self._running:
            one.client.close()
            one.server.stop(5)


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """One cache for the servers of all tests, which serve the same models again and again."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def start(tmp_path: pathlib.Path, warm_cache: pathlib.Path) -> Iterator[Starter]:
    starter = Starter(tmp_path, warm_cache)
    yield starter
    starter.close()


@pytest.fixture
def start_fake(start: Starter, fake: FakeExecutable) -> StartFake:
    """Start a server whose only model, ``fake``, is the fixture of that name."""

    def start_server(extra: str = "", server: str = "", http: str = "", wait: bool = True) -> Running:
        models = f"- {{name: fake, path: fake.onnx, warmup: 0, {extra}}}\n"
        ports = f"grpc: {{port: 0}}, http: {{port: 0, {http}}}"
        return start(models, ports=ports, server=server, loader=lambda model: fake, wait=wait)

    return start_server


@pytest.fixture(scope="session")
def shared(
    models: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path
) -> Iterator[Running]:
    """One server with all of ``models``, for tests that leave it as it is."""
    starter = Starter(tmp_path_factory.mktemp("shared"), warm_cache)
    yield starter(entries_of(models))
    starter.close()


class Adders:
    """Writes models that add a constant to ``x``, and asks servers which one answers."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def write(self, place: str, constant: float) -> pathlib.Path:
        """Put a model in place in one step, as tools that deploy models do."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(self.content(constant))
        return unfinished.replace(path)

    def content(self, constant: float) -> bytes:
        value = helper.make_tensor_value_info
        initializer = helper.make_tensor("k", TensorProto.FLOAT, [1], [constant])
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "k"], ["y"])],
            "adder",
            [value("x", TensorProto.FLOAT, ["n", 1])],
            [value("y", TensorProto.FLOAT, ["n", 1])],
            [initializer],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(model.SerializeToString())

    def ask(self, client: triton.InferenceServerClient, version: str = "", model: str = "m") -> float:
        """Return the constant of the model that answers."""
        return float(client.infer(model, [given("x", np.zeros((1, 1), np.float32))], version).as_numpy("y")[0, 0])

    def index(self, client: triton.InferenceServerClient) -> dict[str, tuple[str, str]]:
        """Return state and reason of each version in the server's index."""
        return {one.version: (one.state, one.reason) for one in client.get_model_repository_index().models}


@pytest.fixture
def adders(tmp_path: pathlib.Path) -> Adders:
    return Adders(tmp_path)


@pytest.fixture
def eventually() -> Eventually:
    """Wait until a condition holds, or fail."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            assert time.monotonic() < deadline, "timed out"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def with_memory(
    models: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path
) -> Iterator[Running]:
    """Like ``shared``, but with 1 MiB of shared memory for clients, who leave no region behind."""
    starter = Starter(tmp_path_factory.mktemp("memory"), warm_cache)
    yield starter(
        entries_of(models), server="admin: {shared_memory: true, settings: true}, limits: {shared_memory_mb: 1}"
    )
    starter.close()


def entries_of(models: pathlib.Path) -> str:
    paths = sorted(models.glob("*.onnx"))
    return "".join(f"- {{name: {path.stem}, path: {path}, engine: native}}\n" for path in paths)
