"""Asks ONNX Runtime for the types that ONNX's own inference doesn't know, such as those behind contrib operators."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Sequence

import onnx_ir as ir

from engines.artifact.files import write_model
from engines.errors import EngineError
from partitioner import Graph, TensorSpec, extract_model
from partitioner.passes.shape_sources import ShapeSource, incomplete_values

logger = logging.getLogger(__name__)

OutputTypes = dict[str, tuple[str, Sequence[int | str | None]]]

ELEMENT_TYPES = {
    "tensor(bool)": ir.DataType.BOOL,
    "tensor(double)": ir.DataType.DOUBLE,
    "tensor(float)": ir.DataType.FLOAT,
    "tensor(float16)": ir.DataType.FLOAT16,
    "tensor(int16)": ir.DataType.INT16,
    "tensor(int32)": ir.DataType.INT32,
    "tensor(int64)": ir.DataType.INT64,
    "tensor(int8)": ir.DataType.INT8,
    "tensor(string)": ir.DataType.STRING,
    "tensor(uint16)": ir.DataType.UINT16,
    "tensor(uint32)": ir.DataType.UINT32,
    "tensor(uint64)": ir.DataType.UINT64,
    "tensor(uint8)": ir.DataType.UINT8,
}


def native_types(ask: Callable[[pathlib.Path], OutputTypes], folder: pathlib.Path) -> ShapeSource:
    """Return the source of the types and shapes that ONNX Runtime infers.

    Args:
        ask: Types and shapes of the outputs of the model in a file.
        folder: Where the file may be written.
    """

    def source(graph: Graph) -> dict[str, TensorSpec]:
        unknown = incomplete_values(graph)
        path = folder / "untyped.onnx"
        model = extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=unknown, keep_defaults=True)
        write_model(model, path)
        try:
            known = ask(path)
        except EngineError as error:
            logger.info("Some types stay unknown: %s", error)
            return {}
        return {name: _spec(name, kind, shape) for name, (kind, shape) in known.items() if kind in ELEMENT_TYPES}

    return source


def _spec(name: str, kind: str, shape: Sequence[int | str | None]) -> TensorSpec:
    """Return what ONNX Runtime says of a tensor; it says [] for an unknown rank as well."""
    return TensorSpec(name=name, dtype=ELEMENT_TYPES[kind], shape=tuple(shape) if shape else None)
