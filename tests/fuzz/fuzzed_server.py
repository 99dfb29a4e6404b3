"""A server process that takes fuzzed messages over both ports."""

from __future__ import annotations

import functools
import http.client
import json
import pathlib
import re
import resource
import subprocess
import sys

import grpc
import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.commands import MEMORY_BYTES
from trtnode.bench.server_process import free_port, inference_request, wait_until_ready
from trtnode.protos import ModelInferRequest, ModelInferResponse

ANSWER_S = 120
SERVICE = "/inference.GRPCInferenceService/"
PLAIN = {
    grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED,
}  # fmt: skip
UNEXPECTED = re.compile(r"unexpected|Traceback|its log says why")
ROW = np.array([[1, 2, 3]], np.float32)


class FuzzedServer:
    """The process; started again when a case has killed it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._config = folder / "servable.yaml"
        self._log = folder / "server.log"
        self._read = 0
        _write_models(folder)
        names = ("two", "INT64", "STRING", "FLOAT16")
        models = [f"- {{name: {name}, path: {name}.onnx, engine: native}}" for name in names]
        models.append("- {name: batched, path: two.onnx, engine: native, batching: {priority_levels: 2}}")
        admin = "admin: {repository: true, shared_memory: true, settings: true}"
        self._port, self._http_port = free_port(), free_port()
        ports = f"grpc: {{port: {self._port}}}, http: {{port: {self._http_port}}}"
        self._config.write_text(f"server: {{{ports}, {admin}}}\ncache: {{dir: cache}}\nmodels:\n" + "\n".join(models))
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None

    def call(self, data: bytes) -> str:
        """Send a fuzzed gRPC call; return what is wrong with the answer, empty if nothing is."""
        rpc, _, body = data.partition(b"\n")
        self._start()
        assert self._channel is not None
        future = self._channel.unary_unary(SERVICE + rpc.decode()).future(body, timeout=ANSWER_S)
        code, details = future.code(), future.details() or ""
        wrong = "" if code in PLAIN and not UNEXPECTED.search(details) else f"{rpc.decode()}: {code}: {details}"
        return self._health() or wrong

    def post(self, data: bytes) -> str:
        """Send a fuzzed HTTP request; return what is wrong with the answer, empty if nothing is."""
        head, _, body = data.partition(b"\n")
        facts = json.loads(head)
        self._start()
        connection = http.client.HTTPConnection("127.0.0.1", self._http_port, timeout=ANSWER_S)
        try:
            connection.request("POST", facts["path"], body, facts["headers"])
            answer = connection.getresponse()
            status, text = answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return f"{facts['path']}: {type(error).__name__}: {error}"
        finally:
            connection.close()
        wrong = f"{facts['path']}: {status}: {text[:400]}" if status >= 500 and UNEXPECTED.search(text) else ""
        return self._health() or wrong

    def close(self) -> None:
        """End the server."""
        process, self._process = self._process, None
        if self._channel is not None:
            self._channel.close()
        if process is not None:
            process.kill()
            process.wait()

    def _health(self) -> str:
        """Return what is wrong with the server after a case."""
        assert self._process is not None
        assert self._channel is not None
        log = self._log.read_text(errors="replace")
        new, self._read = log[self._read :], len(log)
        if self._process.poll() is not None:
            code = self._process.returncode
            self.close()
            return f"the server ended with {code}: {new[-600:]}"
        if "unexpectedly" in new or "Traceback" in new:
            return f"the server's log: {new[-1500:]}"
        request = inference_request("two", {"a": ROW, "b": ROW})
        infer = self._channel.unary_unary(
            SERVICE + "ModelInfer",
            request_serializer=ModelInferRequest.SerializeToString,
            response_deserializer=ModelInferResponse.FromString,
        )
        right = infer(request, timeout=ANSWER_S).raw_output_contents[0] == (2 * ROW).tobytes()
        return "" if right else "a good request is answered wrongly afterwards"

    def _start(self) -> None:
        if self._process is not None:
            return
        self._read = 0
        command = [sys.executable, "-m", "trtnode", "serve", "--config", str(self._config)]
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, stderr=log, preexec_fn=limit)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{self._port}")
        wait_until_ready(self._channel, self._process)


def _write_models(folder: pathlib.Path) -> None:
    value = helper.make_tensor_value_info
    rows = ["n", 3]
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Mul", ["a", "b"], ["product"])]
    inputs = [value(name, TensorProto.FLOAT, rows) for name in ("a", "b")]
    outputs = [value(name, TensorProto.FLOAT, rows) for name in ("sum", "product")]
    _save(folder / "two.onnx", nodes, inputs, outputs)
    for name in ("INT64", "STRING", "FLOAT16"):
        kind = getattr(TensorProto, name)
        node = helper.make_node("Identity", ["x"], ["y"])
        _save(folder / f"{name}.onnx", [node], [value("x", kind, ["n", "m"])], [value("y", kind, ["n", "m"])])


def _save(path: pathlib.Path, nodes: list[object], inputs: list[object], outputs: list[object]) -> None:
    graph = helper.make_graph(nodes, path.stem, inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
