"""Linear layers from files of safetensors. Their library reads them; it is an optional part of the installation."""

from __future__ import annotations

import numpy as np

from trtnode.partitioner.errors import PipelineError
from trtnode.partitioner.model.regular_files import open_regular
from trtnode.partitioner.pipelines.stage_models import KeyPath
from trtnode.partitioner.pipelines.token_blocks import Dense
from trtnode.serving.schema.text import DenseConfig

try:
    import safetensors.numpy

    MISSING = ""
except ImportError:
    MISSING = "safetensors is not installed here; run: pip install 'trtnode[text]'"
"""The reason for which weights can't be read; empty where they can."""

MOST_BYTES = 256 << 20
"""A layer of 8,192 by 8,192 weights has this size."""

WEIGHT, BIAS = "linear.weight", "linear.bias"


def dense_block(config: DenseConfig, place: KeyPath) -> Dense:
    """Read a layer.

    Raises:
        PipelineError: The library isn't installed, or the file can't be used.
    """
    if MISSING:
        raise PipelineError(place, MISSING)
    try:
        with open_regular(config.file) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise PipelineError(place, f"{config.file} has more than {MOST_BYTES >> 20} MiB; name a smaller layer")
        tensors = safetensors.numpy.load(content)
    except OSError as error:
        raise PipelineError(place, f"{config.file} can't be read ({error.strerror}); correct the path") from None
    except PipelineError:
        raise
    except Exception as error:  # the library raises errors of its own, and KeyError for types that numpy lacks
        raise PipelineError(place, f"{config.file} is no file of safetensors ({error}); save the layer anew") from None
    weight, bias = (None if one is None else one.astype(np.float32) for one in map(tensors.get, (WEIGHT, BIAS)))
    if weight is None or weight.ndim != 2 or not (bias is None or bias.shape == weight.shape[:1]):
        shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in sorted(tensors.items())[:8])
        raise PipelineError(place, f"{config.file} has {shapes}, and no {WEIGHT} [out, in] with {BIAS} [out]")
    return Dense(weight, bias, config.activation)
