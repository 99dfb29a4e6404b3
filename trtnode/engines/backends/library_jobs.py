"""Jobs of the worker process that ask an engine library: what it takes, and to build. ONNX Runtime is not imported."""

from __future__ import annotations

import pathlib

from trtnode.engines.artifact.envelope import Device
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import ModelReading
from trtnode.engines.backends.registry import get_backend
from trtnode.partitioner.cut.labels import Verdict


def build(backend: str, model: pathlib.Path, engine: pathlib.Path, options: BuildOptions) -> None:
    """Build the model in one file into the engine bytes of another.

    Raises:
        BuildError: The library refuses the model.
    """
    engine.write_bytes(get_backend(backend).build(model, options))


def identify(backend: str, options: BuildOptions) -> tuple[str, Device]:
    """Return a library's release, and the device that it builds for."""
    library = get_backend(backend)
    return library.version(), library.target_device(options)


def check_support(backend: str, model: pathlib.Path) -> Verdict:
    """Return the verdict of a library on the nodes of the model in a file."""
    return get_backend(backend).check_support(model)


def read_model(backend: str, model: pathlib.Path) -> ModelReading:
    """Return what a library reads in the model in a file.

    Raises:
        BuildError: The library can't read models of many nodes.
    """
    return get_backend(backend).read_model(model)
