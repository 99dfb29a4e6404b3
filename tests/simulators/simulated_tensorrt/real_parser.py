"""NVIDIA's own parser and profiles, of TensorRT for RTX: they judge models and shapes, and need no GPU for that.

TensorRT has plugins that this library lacks, so a network with one of them is judged up to there. Without the library,
the test that asks is skipped.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from trtnode.engines.tensorrt.labelling.parser import make_logger

try:
    import tensorrt_rtx as rtx  # here, before a simulation takes its name
except ImportError:
    rtx = None

PLUGIN_WORDS = ("plugin", "Unsupported reduction type")
"""In errors about nodes that TensorRT leaves to plugins."""


class RealNetwork:
    """A model parsed by the real library. It keeps what the library needs alive.

    Attributes:
        network: The real network; empty where the parser has refused the model.
        refusals: Index of a node, -1 for none; error code and text.
    """

    def __init__(self, model: bytes) -> None:
        self.network = real_builder().create_network(0)
        library = real_library()
        self._parser = library.OnnxParser(self.network, make_logger(library))
        self._parser.parse(model)
        errors = [self._parser.get_error(index) for index in range(self._parser.num_errors)]
        self.refusals = [(error.node(), error.code().name, error.desc()) for error in errors]

    @property
    def sizes(self) -> set[str]:
        """Names of the inputs that hold sizes."""
        inputs = map(self.network.get_input, range(self.network.num_inputs))
        return {tensor.name for tensor in inputs if tensor.is_shape_tensor}

    @property
    def needs_plugin(self) -> bool:
        """True if a plugin of TensorRT would take a node that was refused."""
        return any(word in text for _, _, text in self.refusals for word in PLUGIN_WORDS)


def real_library() -> Any:
    """Return the module, which is only for x86_64."""
    if rtx is None:
        pytest.skip("TensorRT for RTX is not installed")
    return rtx


@functools.cache
def real_builder() -> Any:
    """Return the real builder, which a process needs once."""
    return real_library().Builder(make_logger(real_library()))


def enumerations() -> dict[str, dict[str, int]]:
    """Return the members of each of the library's enumerations, with their numbers."""
    kinds = {name: kind for name, kind in vars(real_library()).items() if hasattr(kind, "__members__")}
    return {name: {member: int(value) for member, value in kind.__members__.items()} for name, kind in kinds.items()}
