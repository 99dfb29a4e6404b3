"""Makes the model that an engine was built from once more, from the nodes that it replaces and from its envelope.

TensorRT takes back exactly the weights that it left out, by name. The function's nodes and weights, which the
envelope's hash covers, are rewritten to the precisions in the envelope.
Weights that follow from the ranges of a calibration are not in the file, so such engines keep their weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.errors import EngineRejectedError
from trtnode.engines.precision.rewriting import Setting, transform
from trtnode.partitioner.compiled.trtnode import replaced_model
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.view import Graph, Node, specs


def origin_of(model: ir.Model, op: ir.Node, envelope: Envelope) -> onnx.ModelProto:
    """Return the model that the engine of a TrtNode was built from, with the same names and values of weights.

    Args:
        model: The compiled model.
        op: The TrtNode.
        envelope: Of its engine.

    Raises:
        EngineRejectedError: The file lacks the nodes, or the ranges that their weights follow from.
    """
    name = op.name or ""
    if op.op_identifier() not in model.functions:
        raise EngineRejectedError(name, "it holds no weights, and the nodes that have them were left out of the file.")
    if envelope.calibration_sha256:
        raise EngineRejectedError(name, "it holds no weights, and they follow from ranges that the file doesn't hold.")
    source = replaced_model(model, op, outputs=op.outputs)
    graph = Graph.of(ir.from_proto(source))
    segment = Segment(name=name, level=0, nodes=graph.nodes, inputs=graph.inputs, outputs=graph.outputs)
    precisions = envelope.node_precisions
    nodes = tuple(_precision(node, precisions, name) for node in graph.nodes) if precisions else ()
    setting = Setting(asked=envelope.precision_asked, nodes=nodes, fp16_boundaries=_fp16_boundaries(segment, envelope))
    return transform(source, segment, setting, get_backend(envelope.backend)).model


def _fp16_boundaries(segment: Segment, envelope: Envelope) -> frozenset[str]:
    """Return the tensors that the engine holds in another type than the model declares."""
    declared = specs((*segment.inputs, *segment.outputs))
    held = (*envelope.inputs, *envelope.outputs)
    return frozenset(s.name for s, own in zip(declared, held, strict=True) if s.dtype != own.dtype)


def _precision(node: Node, precisions: Mapping[str, str], segment: str) -> str:
    """Return the precision asked of a node. Equal names in other segments change its identity, so both are tried."""
    for identity in (node.name, f"{node.op_type}:{node.op.outputs[0].name}"):
        if identity in precisions:
            return precisions[identity]
    raise EngineRejectedError(segment, f"its envelope has no precision for the node {node.name!r}.")
