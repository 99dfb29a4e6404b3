"""Asks an engine library about a graph as a whole: the nodes that it takes where they stand, and the shapes it infers.

The library stops at the first node that it refuses. It is then asked about what comes after that node, a few times.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import pathlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from trtnode.engines.artifact.cache import EngineCache, engine_key, recall
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.build_environment import build_environment
from trtnode.engines.backends.protocols import Backend, ModelReading
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.errors import EngineError
from trtnode.partitioner.cut.labels import SUPPORTED, Predicate, ReasonCode, Verdict, label_nodes
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.segments import nodes_behind, values_leaving, values_read
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, Node, TensorSpec
from trtnode.partitioner.model.values import names_of
from trtnode.partitioner.passes.shape_inference import skeleton
from trtnode.partitioner.passes.shape_sources import complete_shapes

logger = logging.getLogger(__name__)

TIMEOUT_S = 120.0

QUESTIONS = 8
"""Most questions about one graph. Each after the first is about the nodes behind a refused one."""


MAY_RUN = (None, ReasonCode.UNKNOWN_SHAPE, ReasonCode.DYNAMIC_SHAPE)
"""Codes of nodes that the library is asked about: the table takes them, or knows too little about their shapes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A graph as a library has read it.

    Attributes:
        graph: The graph, with the shapes that only the library knows.
        taken: Nodes that it takes where they stand, by identity.
        refused: Its words about nodes that it refuses there, by identity.
        sized: Taken nodes that compute from inputs whose values decide on shapes, by identity.
    """

    graph: Graph
    taken: frozenset[str] = frozenset()
    refused: Mapping[str, Verdict] = dataclasses.field(default_factory=dict)
    sized: frozenset[str] = frozenset()

    def on(self, graph: Graph) -> Reading:
        """Return what is said about the nodes of another graph that has grown out of this one."""
        return dataclasses.replace(self, graph=graph)

    def judge(self, table: Predicate) -> Predicate:
        """Return a table's rule, except where it could not follow the sizes of a node that the library takes.

        Sizes that depend on the values of a request stay the table's to judge.
        """
        kinds = self._kinds(self.taken) - self._kinds(self.sized)

        def rule(node: Node) -> Verdict:
            verdict = table(node)
            return SUPPORTED if verdict.code == ReasonCode.DYNAMIC_SHAPE and node.key.parts in kinds else verdict

        return rule

    def _kinds(self, names: Collection[str]) -> set[Hashable]:
        return {node.key.parts for node in self.graph.nodes if node.name in names} if names else set()


class WholeModels:
    """Asks one library about graphs."""

    def __init__(self, backend: Backend, cache: EngineCache | None, worker: SubprocessWorker) -> None:
        """Prepare questions.

        Args:
            backend: The library.
            cache: Place where answers are looked up and kept.
            worker: Process in which the library is asked: a question may crash it.
        """
        self._backend = backend
        self._cache = cache
        self._worker = worker

    def read(self, graph: Graph, table: Predicate, options: PartitionOptions) -> Reading:
        """Ask about all nodes that may run in an engine, and complete the shapes of the graph.

        Args:
            graph: The cleaned graph. Its values get types and shapes.
            table: The library's rule without the library. Nodes that it refuses are not asked about.
            options: The user's options. Nodes that they exclude are not asked about.

        Returns:
            What the library said, as far as it answered. Where a question crashes it, nothing more is asked.
        """
        result = Reading(graph=graph)
        for _ in range(QUESTIONS if self._backend.reads_models else 0):
            nodes = _askable(result, table, options)
            answer = self._ask(result.graph, nodes) if values_read(nodes) else None
            if answer is None:
                break
            result = _after(result, nodes, answer)
            if answer.verdict.supported or not answer.refused:
                break
        return result

    def _ask(self, graph: Graph, nodes: Sequence[Node]) -> ModelReading | None:
        """Return the library's answer about nodes of a graph; None where it gives none."""
        key = engine_key(purpose="reading", question=_hash(graph, nodes), **build_environment(self._backend))
        if (known := recall(self._cache, key, _from_json)) is not None:
            return known
        inputs = values_read(nodes)
        outputs = [value for value in values_leaving(graph, nodes) if value.type is not None]
        with TemporaryFolder() as folder:
            path = pathlib.Path(folder) / "whole.onnx"
            write_temporary(extract_model(graph, nodes, inputs=inputs, outputs=outputs), path)
            try:
                answer = self._worker.call(library_jobs.read_model, TIMEOUT_S, self._backend.name, path)
            except EngineError as error:
                logger.info("%s gives no answer about %d nodes at once: %s", self._backend.name, len(nodes), error)
                return None
        logger.info("%s was asked about %d nodes at once", self._backend.name, len(nodes))
        if self._cache:
            self._cache.put_record(key, _as_json(answer))
        return answer


def _askable(before: Reading, table: Predicate, options: PartitionOptions) -> list[Node]:
    """Return the nodes that may run in an engine and were not asked about, and whose inputs have known ranks.

    The table can't judge nodes whose shapes or sizes it doesn't know. They are asked about too.
    """
    graph = before.graph
    labels = label_nodes(graph, table, options)
    nodes: list[Node] = []
    made: set[ir.Value] = set()
    for node in graph.nodes:
        asked = node.name in before.taken or node.name in before.refused
        if asked or labels[node.name].code not in MAY_RUN:
            continue
        if all(value in made or _has_rank(value) for value in node.reads):
            nodes.append(node)
            made.update(node.op.outputs)
    return nodes


def _has_rank(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType) and value.shape is not None


def _after(before: Reading, nodes: Sequence[Node], answer: ModelReading) -> Reading:
    """Return what is known after an answer about nodes: all before the refused one are taken."""
    owners = {name: place for place, node in enumerate(nodes) for name in names_of(node.op.outputs)}
    place = owners.get(answer.refused, 0)
    taken = nodes if answer.verdict.supported else nodes[:place]
    refused = {} if answer.verdict.supported or not answer.refused else {nodes[place].name: answer.verdict}
    tensors = {spec.name: spec for spec in answer.tensors}
    return Reading(
        graph=complete_shapes(before.graph, lambda _: tensors),
        taken=before.taken | {node.name for node in taken},
        refused={**before.refused, **refused},
        sized=before.sized | {node.name for node in nodes_behind(nodes, answer.sizes)},
    )


def _hash(graph: Graph, nodes: Sequence[Node]) -> str:
    """Return the hash of a question: of the nodes asked about in their graph, without its large weights."""
    digest = hashlib.sha256(skeleton(graph.model).SerializeToString(deterministic=True))
    digest.update(repr([node.index for node in nodes]).encode())
    return digest.hexdigest()


def _as_json(answer: ModelReading) -> dict[str, Any]:
    return {
        "code": answer.verdict.code,
        "detail": answer.verdict.detail,
        "refused": answer.refused,
        "sizes": answer.sizes,
        "tensors": [[spec.name, spec.dtype and spec.dtype.value, spec.shape] for spec in answer.tensors],
    }


def _from_json(record: Mapping[str, Any]) -> ModelReading:
    code = record["code"]
    return ModelReading(
        verdict=Verdict(None if code is None else ReasonCode(code), str(record["detail"])),
        refused=str(record["refused"]),
        sizes=tuple(map(str, record["sizes"])),
        tensors=tuple(
            TensorSpec(
                name=str(name),
                dtype=None if dtype is None else ir.DataType(dtype),
                shape=tuple(None if size is None else int(size) for size in shape),
            )
            for name, dtype, shape in record["tensors"]
        ),
    )
