"""Openers load a model in each system. Every opener runs in its own process."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.custom_operators import register
from trtnode.engines.backends.plugins import engine_names
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.engines.runtime.options import RunOptions

RunModel = Callable[[Feeds], Collection[Any]]
"""Runs a request; returns arrays in the order of the model's outputs, or by name in that order."""

Opener = Callable[[pathlib.Path, int | None], RunModel]
"""Loads a model with a number of threads per operator; None for the library's choice."""


def open_onnxruntime(model: pathlib.Path, threads: int | None) -> RunModel:
    """Load in ONNX Runtime alone, with its defaults: all optimizations, and threads that spin between runs."""
    options = onnxruntime.SessionOptions()
    register(options)
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run(feeds: Feeds) -> list[Any]:
        answers: list[Any] = session.run(None, feeds)
        return answers

    return run


def open_compiled(model: pathlib.Path, threads: int | None) -> RunModel:
    """Load a compiled model. It is trusted, because this run compiled it in its own folder."""
    return open_model(model, run=RunOptions(threads=threads, trust=Trust.of([], engine_names()))).run


def open_openvino(model: pathlib.Path, threads: int | None) -> RunModel:
    """Load the whole model in OpenVINO, in float32, with the cheapest call of its Python binding.

    ``CompiledModel.__call__`` with arrays takes longer.

    Raises:
        EngineError: OpenVINO refuses the model.
    """
    backend = get_backend("openvino")  # blocks the package that reports usage over the network
    import openvino as ov
    from openvino._pyopenvino import InferRequest

    properties: dict[str, Any] = dict(backend.build_properties(BuildOptions()))
    if threads is not None:
        properties["INFERENCE_NUM_THREADS"] = threads
    try:
        compiled = ov.Core().compile_model(str(model), "CPU", properties)
    except RuntimeError as error:
        raise EngineError(backend.check_support(model).detail or str(error)) from error
    request = compiled.create_infer_request()
    ports = [port.get_names() for port in compiled.inputs]
    buffers: dict[int, np.ndarray] = {}

    def run(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for index, names in enumerate(ports):
            array = next(array for name, array in feeds.items() if name in names)
            if index not in buffers or buffers[index].shape != array.shape:
                buffers[index] = np.empty_like(array)
                request.set_input_tensor(index, ov.Tensor(buffers[index], shared_memory=True))
            np.copyto(buffers[index], array)
        InferRequest.infer(request, {}, share_outputs=True, decode_strings=False)
        return [tensor.data.copy() for tensor in request.output_tensors]

    return run
