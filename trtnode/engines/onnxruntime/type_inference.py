"""Types that ONNX's own inference doesn't know, such as those behind contrib operators, as native execution tells."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.errors import EngineError
from trtnode.engines.onnxruntime.session import PLAIN_TYPES, NativeSession
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.passes.shape_sources import ShapeSource

logger = logging.getLogger(__name__)

ELEMENT_TYPES = {f"tensor({dtype.name.lower()})": dtype for dtype in (*PLAIN_TYPES, ir.DataType.STRING)}
"""By ONNX Runtime's name."""


def shapes_by(
    ask: Callable[[pathlib.Path], Mapping[str, TensorSpec]],
    folder: pathlib.Path,
    wanted: Callable[[Graph], Sequence[ir.Value]],
) -> ShapeSource:
    """Return the source of the types and shapes that somebody knows who is given a model file.

    Args:
        ask: Types and shapes of the outputs of the model in a file.
        folder: Where the file may be written.
        wanted: The values of a graph that are asked about.
    """

    def source(graph: Graph) -> Mapping[str, TensorSpec]:
        values = wanted(graph)
        if not values:
            return {}
        path = folder / "untyped.onnx"
        model = extract_model(graph, graph.nodes, inputs=graph.inputs, outputs=values, keep_defaults=True)
        write_temporary(model, path)
        try:
            return ask(path)
        except EngineError as error:
            logger.info("Some types stay unknown: %s", error)
            return {}

    return source


def inferred_types(session: NativeSession) -> dict[str, TensorSpec]:
    """Return the types and shapes of a session's outputs that are tensors, as ONNX Runtime infers them, by name."""
    types = session.value_types().items()
    return {name: _spec(name, kind, shape) for name, (kind, shape) in types if kind in ELEMENT_TYPES}


def _spec(name: str, kind: str, shape: Sequence[int | str | None]) -> TensorSpec:
    """Return what ONNX Runtime says of a tensor; it says [] for an unknown rank as well."""
    return TensorSpec(name=name, dtype=ELEMENT_TYPES[kind], shape=tuple(shape) if shape else None)
