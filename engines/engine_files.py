"""Engines on disk while a model is compiled: where they hold no weights, beside the model that they were built from."""

from __future__ import annotations

import functools
import pathlib

import onnx

from engines.base import Engine
from engines.envelope import Envelope
from engines.loading import load_engine

ORIGIN_SUFFIX = ".onnx"
"""Of the model that an engine was built from."""


def load_engine_file(segment: str, file: pathlib.Path, envelope: str) -> Engine:
    """Load an engine that this program has just built, or found in its cache.

    Args:
        segment: For messages.
        file: Of the engine. The model that it was built from is beside it, where it holds no weights.
        envelope: As JSON.

    Raises:
        EngineRejectedError: As ``load_engine``.
    """
    origin = functools.partial(onnx.load, file.with_suffix(ORIGIN_SUFFIX))
    return load_engine(segment, Envelope.from_json(envelope, segment), file.read_bytes(), origin=origin)
