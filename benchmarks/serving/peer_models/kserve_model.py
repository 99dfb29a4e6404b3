"""Serves an ONNX file with KServe: ``kserve_model.py MODEL.onnx NAME GRPC_PORT HTTP_PORT``, in KServe's own Python."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import grpc.aio
import onnxruntime
import uvicorn
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

HOST = "127.0.0.1"


class OnnxKServeModel(Model):  # type: ignore[misc]  # installed in another environment
    """An ONNX file."""

    def __init__(self, name: str, file: str) -> None:
        super().__init__(name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(file, options)
        self.ready = True

    async def predict(self, payload: InferRequest, *_headers: Any, **_more: Any) -> InferResponse:
        """Answer one request."""
        feeds = {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
        names = [output.name for output in self._session.get_outputs()]
        outputs = []
        for name, array in zip(names, self._session.run(names, feeds), strict=True):
            output = InferOutput(name=name, shape=list(array.shape), datatype="FP32")
            output.set_data_from_numpy(array, binary_data=True)
            outputs.append(output)
        return InferResponse(response_id=payload.id, model_name=self.name, infer_outputs=outputs)


class LoopbackConfig(uvicorn.Config):
    """Listens on HOST, whatever address is given."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "host": HOST})


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Make KServe listen on HOST: it has no option for that and listens on all addresses."""
    add_port = grpc.aio.Server.add_insecure_port

    def add_loopback_port(server: grpc.aio.Server, address: str) -> int:
        return int(add_port(server, f"{HOST}:{address.rpartition(':')[2]}"))

    with (
        mock.patch.object(grpc.aio.Server, "add_insecure_port", add_loopback_port),
        mock.patch.object(uvicorn, "Config", LoopbackConfig),
    ):
        yield


if __name__ == "__main__":
    file, name, grpc_port, http_port = sys.argv[1:]
    with loopback_only():
        ModelServer(http_port=int(http_port), grpc_port=int(grpc_port)).start([OnnxKServeModel(name, file)])
