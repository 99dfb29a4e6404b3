"""Asks an engine library about the nodes that our own table accepts, once for each node key.

The table lists the operators that a library computes right. The library alone knows which of them it converts. Its
verdicts are kept in the engine cache, so that the same operators cost nothing in the next model.
"""

from __future__ import annotations

import functools
import itertools
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence

from trtnode.engines.artifact.cache import EngineCache, engine_key
from trtnode.engines.artifact.files import write_temporary
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.build_environment import build_environment
from trtnode.engines.backends.protocols import Backend
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.build.whole_model import Reading
from trtnode.engines.errors import WorkerError
from trtnode.partitioner.cut.labels import Predicate, ReasonCode, Verdict, engine_nodes, label_nodes
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.graph.extraction import sampler_model
from trtnode.partitioner.graph.node_keys import NodeKey
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.values import has_subgraphs
from trtnode.partitioner.wording import counted

logger = logging.getLogger(__name__)

TIMEOUT_S = 120.0

TAKEN = ""
"""The record of a node that the library takes. Another one's is the reason code, ``SEPARATOR`` and the sentence."""

SEPARATOR = ": "

NO_ANSWER = "The library could not be asked about it"
"""Begins the answer about a node whose question crashed the library. Such an answer is not kept."""

_known: dict[str, dict[str, str]] = {}
"""Answers that libraries have given to this process, by the library's key and the node key's hash."""


def ask_library(
    backend: Backend, reading: Reading, options: PartitionOptions, cache: EngineCache | None, worker: SubprocessWorker
) -> Predicate:
    """Refine a backend's label by its library's verdicts on the nodes of a graph.

    Args:
        backend: The library.
        reading: The graph that will be labelled. Kinds of nodes that the library takes in it are not asked about.
        options: The user's options. Nodes that they exclude are not asked about.
        cache: Place where answers are looked up and kept.
        worker: Process in which the library is asked: a question may crash it.

    Returns:
        The backend's rule, and then the library's answer.
    """
    graph = reading.graph
    table = reading.judge(functools.partial(backend.label, allow=options.allow))
    library = engine_key(purpose="verdicts", **build_environment(backend))
    said = _known.setdefault(library, {})
    if cache:
        said.update(cache.verdicts(library))
    taken = {node.key for node in graph.nodes if node.name in reading.taken} if reading.taken else set()
    inside = {key.digest: TAKEN for key in taken}
    labels = label_nodes(graph, table, options)
    kinds: dict[NodeKey, Node] = {}
    for node in itertools.compress(graph.nodes, engine_nodes(graph, labels)):
        if node.key not in kinds and _can_stand_alone(graph, node):
            kinds[node.key] = node
    new = {hashed: node for node in kinds.values() if (hashed := node.key.digest) not in said.keys() | inside}
    if new:
        with TemporaryFolder() as folder:
            ask = functools.partial(_ask, worker, backend.name, folder / "nodes.onnx")
            answers = dict.fromkeys(new, TAKEN) | _refusals(list(new.items()), ask)
        logger.info("%s was asked about %s of nodes", backend.name, counted(len(new), "kind"))
        said.update(answers)
        if cache:
            cache.put_verdicts(library, {k: v for k, v in answers.items() if not v.startswith(NO_ANSWER)})
    return _refined(table, {**said, **inside})


def _refined(label: Predicate, said: Mapping[str, str]) -> Predicate:
    answers: dict[NodeKey, str] = {}

    def rule(node: Node) -> Verdict:
        verdict = label(node)
        if verdict.supported and node.key not in answers:
            answers[node.key] = said.get(node.key.digest, TAKEN)
        if verdict.supported and (answer := answers[node.key]):
            return _read_answer(answer)
        return verdict

    return rule


def _read_answer(answer: str) -> Verdict:
    code, separator, detail = answer.partition(SEPARATOR)
    if separator and code in ReasonCode.__members__:
        return Verdict(ReasonCode(code), detail)
    return Verdict(ReasonCode.UNSUPPORTED_OP, answer)


def _refusals(nodes: Sequence[tuple[str, Node]], ask: Callable[[Sequence[Node]], str | None]) -> dict[str, str]:
    """Find the nodes that the library refuses, by asking about halves of what it refuses together."""
    sentence = ask([node for _, node in nodes])
    if sentence is None:
        return {}
    if len(nodes) == 1:
        return {nodes[0][0]: sentence}
    middle = len(nodes) // 2
    return _refusals(nodes[:middle], ask) | _refusals(nodes[middle:], ask)


def _ask(worker: SubprocessWorker, backend: str, path: pathlib.Path, nodes: Sequence[Node]) -> str | None:
    links = get_backend(backend).reads_links
    write_temporary(sampler_model(nodes, weights_outside=links), path, link=links)
    try:
        verdict = worker.call(library_jobs.check_support, TIMEOUT_S, backend, path)
        return f"{verdict.code}{SEPARATOR}{verdict.detail}" if verdict.code else None
    except WorkerError as error:
        return f"{NO_ANSWER}: {error}"


def _can_stand_alone(graph: Graph, node: Node) -> bool:
    """Return whether a node means the same outside its graph: subgraphs capture values, shape arithmetic folds."""
    return not has_subgraphs(node.op) and graph.shape_arithmetic.isdisjoint(node.reads)
