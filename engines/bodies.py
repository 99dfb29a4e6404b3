"""Compiles the bodies of native control flow like models of their own, and puts them back into the compiled model."""

from __future__ import annotations

import dataclasses
import fnmatch
import glob
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx

from engines.building import BuiltEngine
from engines.errors import EngineError
from engines.flows import is_runnable
from partitioner import (
    EmbeddedEngine,
    Graph,
    Node,
    Partition,
    PartitionError,
    PartitionOptions,
    Predicate,
    ReasonCode,
    Segment,
    clean_up,
    embed_engines,
    partition_graph,
)
from partitioner.bodies import FLOW_OPS, Body, bodies_of, put_back
from partitioner.body_gain import expected_trips, refuse_unless_pays
from partitioner.report import BodyReport, native_nodes

logger = logging.getLogger(__name__)

FINAL = frozenset({ReasonCode.USER_EXCLUDED, ReasonCode.TOO_SMALL, ReasonCode.NOT_FASTER})
"""Why a node runs natively as a whole, bodies included."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A graph whose engines have been built and checked.

    Attributes:
        partition: Its segments all have engines.
        engines: By segment name.
        bodies: What runs in engines inside its native nodes.
    """

    partition: Partition
    engines: Mapping[str, BuiltEngine]
    bodies: Sequence[SettledBody] = ()

    @property
    def has_engines(self) -> bool:
        """Whether there is an engine anywhere."""
        return bool(self.partition.segments or self.bodies)

    def embed(self, prefix: str = "") -> onnx.ModelProto:
        """Write the graph with its engines.

        Args:
            prefix: Before the name of each segment.
        """
        graph = self.partition.graph
        segments = [_renamed(segment, prefix) for segment in self.partition.segments]
        contents = {
            f"{prefix}{name}": EmbeddedEngine(envelope=engine.envelope, engine=engine.path.read_bytes())
            for name, engine in self.engines.items()
        }
        proto = embed_engines(graph, segments, contents)
        for node in graph.nodes:
            inside = [b for b in self.bodies if b.body.owner == node.name]
            models = {b.body.attribute: (b.body, b.settled.embed(f"{prefix}{b.body.name}/")) for b in inside}
            if models:
                put_back(proto, node, models)
        return proto

    def all_engines(self) -> Iterator[BuiltEngine]:
        """Every engine, those in bodies included."""
        yield from self.engines.values()
        for body in self.bodies:
            yield from body.settled.all_engines()

    def body_segments(self) -> list[str]:
        """Names of the segments of all bodies."""
        return [name for report in self.body_reports() for name in report.segments]

    def body_reports(self, prefix: str = "", owner: str = "") -> Iterator[BodyReport]:
        """What runs where in each body, in bodies of bodies too.

        Args:
            prefix: Before the name of each segment.
            owner: Before the identity of each node.
        """
        for one in self.bodies:
            inner, node, partition = f"{prefix}{one.body.name}/", f"{owner}{one.body.owner}", one.settled.partition
            native = native_nodes(partition.graph, partition.segments, partition.labels)
            yield BodyReport(
                node=node,
                body=one.body.attribute,
                nodes=len(partition.graph.nodes),
                segments={f"{inner}{s.name}": tuple(f"{node}/{n.name}" for n in s.nodes) for s in partition.segments},
                native=tuple(dataclasses.replace(n, node=f"{node}/{n.node}") for n in native),
            )
            yield from one.settled.body_reports(inner, f"{node}/")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SettledBody:
    """A body with engines."""

    body: Body
    settled: Settled


class BodyCompiler:
    """Compiles the bodies of one model's native nodes, each once.

    Attributes:
        given_up: Whether all bodies stay native from now on.
    """

    def __init__(self, compile_body: Callable[[Body, int], Settled]) -> None:
        """Remember how to compile.

        Args:
            compile_body: Compiles a body that is expected to run so many times.
        """
        self._compile_body = compile_body
        self._known: dict[str, tuple[SettledBody, ...]] = {}
        self.given_up = False

    def settle(self, partition: Partition) -> tuple[SettledBody, ...]:
        """Bodies of the partition's native nodes, those without engines left out."""
        if self.given_up or partition.options.max_segments is not None:
            return ()
        return tuple(body for node in _native_flows(partition) for body in self._settle_node(partition.graph, node))

    def _settle_node(self, graph: Graph, node: Node) -> tuple[SettledBody, ...]:
        if node.name not in self._known:
            bodies = bodies_of(graph.model, node)
            trips = expected_trips(node)
            found = (self._settle_body(body, trips) for body in bodies) if is_runnable(bodies) else ()
            self._known[node.name] = tuple(settled for settled in found if settled)
        return self._known[node.name]

    def _settle_body(self, body: Body, trips: int) -> SettledBody | None:
        try:
            settled = self._compile_body(body, trips)
        except (EngineError, PartitionError) as error:
            logger.info("%s runs natively: %s", body.name, error)
            return None
        return SettledBody(body=body, settled=settled) if settled.has_engines else None


def plan_bodies(
    partition: Partition, ask: Callable[[Graph, PartitionOptions], Predicate], *, owner: str = "", trips: int = 1
) -> tuple[SettledBody, ...]:
    """Partition the bodies of native nodes as a compilation would, without building anything.

    Args:
        partition: Of the graph that has the nodes.
        ask: The engine's rule, for a graph and the user's wishes.
        owner: Identity of the control-flow node that the graph is a body of; empty where it is none.
        trips: How often the graph is expected to run.
    """

    def plan(body: Body, times: int) -> Settled:
        times, inner, graph = times * trips, owner_inside(owner, body), clean_up(body.model)
        wishes = wishes_inside(partition.options, graph, inner)
        part = partition_graph(graph, ask(graph, wishes), wishes)
        part = part.demote(refuse_unless_pays(part, times))
        return Settled(partition=part, engines={}, bodies=plan_bodies(part, ask, owner=inner, trips=times))

    return BodyCompiler(plan).settle(partition)


def owner_inside(owner: str, body: Body) -> str:
    """Identity of the node that has a body, in the whole model."""
    return f"{owner}/{body.owner}" if owner else body.owner


def wishes_inside(options: PartitionOptions, graph: Graph, owner: str) -> PartitionOptions:
    """What the user's wishes mean inside a body, whose nodes' identities begin with that of the node that has it."""
    names = (node.name for node in graph.nodes)
    excluded = [n for n in names if any(fnmatch.fnmatchcase(f"{owner}/{n}", wish) for wish in options.native_nodes)]
    engine_ops = options.engine_ops
    return dataclasses.replace(
        options,
        native_ops=tuple(op for op in options.native_ops if op in graph.op_types),
        native_nodes=tuple(map(glob.escape, excluded)),
        engine_ops=None if engine_ops is None else tuple(op for op in engine_ops if op in graph.op_types),
    )


def _native_flows(partition: Partition) -> list[Node]:
    labels, constant = partition.labels, partition.graph.constant
    return [
        node
        for node, once in zip(partition.graph.nodes, constant, strict=True)
        if node.op_type in FLOW_OPS and not (once or labels[node.name].supported or labels[node.name].code in FINAL)
    ]


def _renamed(segment: Segment, prefix: str) -> Segment:
    return dataclasses.replace(segment, name=f"{prefix}{segment.name}")
