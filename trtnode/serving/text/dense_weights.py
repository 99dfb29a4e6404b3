"""Linear layers from files of safetensors. Their library reads them; it is an optional part of the installation."""

from __future__ import annotations

import numpy as np

from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.pipelines.stage_models import KeyPath
from trtnode.partitioner.pipelines.token_blocks import Dense
from trtnode.serving.errors import TextModelError
from trtnode.serving.schema.text import DenseConfig
from trtnode.serving.text.folder_files import read_bounded

try:
    import safetensors.numpy

    MISSING = ""
except ImportError:
    MISSING = "safetensors is not installed here; run: pip install 'trtnode[text]'"
"""The reason for which weights can't be read; empty where they can."""

MOST_BYTES = 256 << 20
"""A layer of 8,192 by 8,192 weights has this size."""


def dense_block(config: DenseConfig, place: KeyPath) -> Dense:
    """Read a layer.

    Raises:
        PipelineError: The library isn't installed, or the file can't be used.
    """
    if MISSING:
        raise PipelineError(place, MISSING)
    try:
        tensors = safetensors.numpy.load(read_bounded(config.file, MOST_BYTES))
        weight, bias = tensors["linear.weight"].astype(np.float32), tensors.get("linear.bias")
        if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
            raise ValueError("linear.weight should be [out, in], and linear.bias [out]")
    except TextModelError as error:
        raise PipelineError(place, str(error).rstrip(".")) from None
    except Exception as error:  # the library raises errors of its own
        raise PipelineError(place, f"{config.file} is no layer of safetensors ({error}); save it anew") from None
    return Dense(weight, None if bias is None else bias.astype(np.float32), config.activation)
