"""Loads control-flow nodes whose bodies hold engines."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir

from engines.envelope import Envelope
from engines.errors import EngineError
from engines.onnxruntime_backend import runs_as_array
from engines.pipeline import Flow, FlowBody, Pipeline
from partitioner import Graph, Node, is_trtnode
from partitioner.bodies import Body, bodies_of
from partitioner.graph import body_nodes
from partitioner.values import is_constant, names_of

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBody:
    """A body as it was loaded.

    Attributes:
        pipeline: All native where no engine could be loaded.
        envelopes: Of its engines, by segment name; those of bodies inside included.
        rejected: Why engines could not be loaded.
    """

    pipeline: Pipeline
    envelopes: Mapping[str, Envelope]
    rejected: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFlow:
    """A control-flow node as it was loaded; ``flow`` is None where it runs natively."""

    flow: Flow | None
    envelopes: Mapping[str, Envelope]
    rejected: Sequence[str]


def open_flows(graph: Graph, open_body: Callable[[ir.Model], OpenedBody]) -> Iterator[OpenedFlow]:
    """Load every control-flow node of a compiled graph that has engines in its bodies."""
    for node in graph.nodes:
        if any(is_trtnode(inner.op) for inner in body_nodes(node)):
            yield _open_flow(node, bodies_of(graph.model, node), open_body)


def is_runnable(bodies: Sequence[Body]) -> bool:
    """Whether all that goes into bodies and comes out of them can be handed to engines."""
    return bool(bodies) and all(runs_as_array(spec) for body in bodies for spec in body.interface)


def _open_flow(node: Node, bodies: Sequence[Body], open_body: Callable[[ir.Model], OpenedBody]) -> OpenedFlow:
    if not is_runnable(bodies):
        return OpenedFlow(flow=None, envelopes={}, rejected=[])
    try:
        opened = [open_body(body.model) for body in bodies]
    except EngineError as error:
        logger.warning("%s runs natively: a body can't be loaded (%s)", node.name, error)
        return OpenedFlow(flow=None, envelopes={}, rejected=[str(error)])
    envelopes = {name: envelope for one in opened for name, envelope in one.envelopes.items()}
    rejected = [reason for one in opened for reason in one.rejected]
    flow = Flow(
        name=node.name,
        op_type=node.op_type,
        inputs=tuple("" if v is None else v.name or "" for v in node.op.inputs),
        outputs=tuple(names_of(node.op.outputs)),
        constants={v.name or "": v.const_value.numpy() for v in _constants(node) if v.const_value is not None},
        bodies={
            body.attribute: FlowBody(pipeline=one.pipeline, formal=body.formal)
            for body, one in zip(bodies, opened, strict=True)
        },
        scanned=node.op.attributes.get_int("num_scan_inputs") or 0,
    )
    return OpenedFlow(flow=flow if envelopes else None, envelopes=envelopes, rejected=rejected)


def _constants(node: Node) -> Iterator[ir.Value]:
    return (v for v in node.op.inputs if v is not None and is_constant(v))
