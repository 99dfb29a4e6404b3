"""Native execution on a GPU: sessions of ONNX Runtime's CUDA provider on a given stream."""

from __future__ import annotations

import functools
from typing import Any

import onnx

from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.library import onnxruntime
from trtnode.engines.onnxruntime.session import clean_message, new_options
from trtnode.engines.onnxruntime.workarounds.optimizers import optimizer_options

CUDA_PROVIDER = "CUDAExecutionProvider"


CUDA_SETTINGS = {
    "device_id": "0",
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "HEURISTIC",
    "do_copy_in_default_stream": "1",
    "use_tf32": "0",
}
"""Of ONNX Runtime's CUDA provider. Native stages are the reference, so they keep all bits of float32."""


@functools.cache
def has_cuda() -> bool:
    """Return whether this build of ONNX Runtime computes on NVIDIA GPUs."""
    return CUDA_PROVIDER in onnxruntime.get_available_providers()


def open_cuda_session(model: onnx.ModelProto, *, stream: int, name: str) -> Any:
    """Load a model for the GPU. Runs put their work on one stream, in order, without waiting.

    The TensorRT provider is never asked for: it would build engines of its own, with a library of another version.

    Args:
        model: Small enough for one protobuf message.
        stream: The stream's handle.
        name: For messages.

    Returns:
        An ``onnxruntime.InferenceSession``.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model, or can't use the GPU.
    """
    onnxruntime.set_default_logger_severity(4)
    options = new_options(optimizer_options(model))
    settings = {**CUDA_SETTINGS, "user_compute_stream": str(stream)}
    providers = [(CUDA_PROVIDER, settings), "CPUExecutionProvider"]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception as error:  # the binding has a class of its own for each status code
        raise ModelLoadError(name, clean_message(error)) from error
    if session.get_providers()[0] != CUDA_PROVIDER:
        raise ModelLoadError(name, "its CUDA provider can't start here; onnxruntime-gpu[cuda,cudnn] has what it needs")
    session.disable_fallback()  # it would answer a failure by silently opening the model on the CPU
    return session


def asynchronous_run() -> Any:
    """Return options of a run that leaves its work on the stream."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options
