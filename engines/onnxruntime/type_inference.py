"""Asks ONNX Runtime for the types that ONNX's own inference doesn't know, such as those behind contrib operators."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Sequence

import onnx_ir as ir

from engines.artifact.files import write_model
from engines.errors import EngineError
from partitioner import Graph, extract_model

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


def complete_types(graph: Graph, ask: Callable[[pathlib.Path], OutputTypes], folder: pathlib.Path) -> None:
    """Give untyped values of a graph the types that ONNX Runtime infers, in place.

    Args:
        graph: The cleaned graph.
        ask: Types and shapes of the outputs of the model in a file.
        folder: Where the file may be written.
    """
    untyped = [v for node in graph.nodes for v in node.op.outputs if v.name and (v.type is None or v.shape is None)]
    if not untyped:
        return
    path = folder / "untyped.onnx"
    write_model(extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=untyped, keep_defaults=True), path)
    try:
        known = ask(path)
    except EngineError as error:
        logger.info("Some types stay unknown: %s", error)
        return
    for value in untyped:
        kind, shape = known.get(value.name or "", ("", ()))
        if kind in ELEMENT_TYPES:
            value.type = ir.TensorType(ELEMENT_TYPES[kind])
            value.shape = ir.Shape(shape) if shape else None  # ONNX Runtime says [] for an unknown rank as well
