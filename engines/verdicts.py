"""Asks an engine library about the nodes that our own table lets through, once for each node signature.

The table says what a library computes right; the library alone knows what it converts at all. What it says is kept in
the engine cache, so that the same operators cost nothing in the next model.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence

from engines import jobs
from engines.base import Backend
from engines.building import builder_version
from engines.cache import EngineCache, engine_key
from engines.errors import WorkerError
from engines.files import write_model
from engines.worker import Worker
from partitioner import Graph, Node, PartitionOptions, Predicate, ReasonCode, Verdict, label_nodes
from partitioner.extract import sampler_model
from partitioner.values import bodies

logger = logging.getLogger(__name__)

TIMEOUT_S = 120.0

TAKEN = ""
"""What is kept for a node that the library takes; of another, the reason code, ``SEPARATOR`` and the sentence."""

SEPARATOR = ": "

NO_ANSWER = "The library could not be asked about it"
"""Begins what is said about a node whose question crashed the library; that is not kept."""

_known: dict[str, dict[str, str]] = {}
"""What libraries have said to this process, by the library's key and the signature's hash."""


def ask_library(
    backend: Backend, graph: Graph, options: PartitionOptions, cache: EngineCache | None, worker: Worker
) -> Predicate:
    """Refine a backend's label by what its library says about the nodes of a graph.

    Args:
        backend: The library.
        graph: What will be labelled.
        options: The user's wishes; what they exclude is not asked about.
        cache: Where answers are looked up and kept.
        worker: Where the library is asked: a question may crash it.

    Returns:
        The backend's rule, and then the library's answer.
    """
    table = functools.partial(backend.label, allow=options.allow)
    key = engine_key(
        verdicts=backend.name,
        version=backend.version(),
        device=backend.device().features,
        builder=builder_version(),
    )
    said = _known.setdefault(key, {})
    if cache:
        said.update(cache.verdicts(key))
    labels = label_nodes(graph, table, options)
    new = {
        _hash(node): node
        for node in graph.nodes
        if labels[node.name].supported and _can_stand_alone(graph, node) and _hash(node) not in said
    }
    if new:
        with tempfile.TemporaryDirectory(prefix="trtnode-") as folder:
            ask = functools.partial(_ask, worker, backend.name, pathlib.Path(folder) / "nodes.onnx")
            answers = dict.fromkeys(new, TAKEN) | _refusals(list(new.items()), ask)
        logger.info("%s was asked about %d kinds of nodes", backend.name, len(new))
        said.update(answers)
        if cache:
            cache.put_verdicts(key, {k: v for k, v in answers.items() if not v.startswith(NO_ANSWER)})
    return _refined(table, said)


def _refined(label: Predicate, said: Mapping[str, str]) -> Predicate:
    def rule(node: Node) -> Verdict:
        verdict = label(node)
        if verdict.supported and (answer := said.get(_hash(node), TAKEN)):
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


def _ask(worker: Worker, backend: str, path: pathlib.Path, nodes: Sequence[Node]) -> str | None:
    write_model(sampler_model(nodes), path)
    try:
        verdict = worker.call(jobs.refusal, TIMEOUT_S, backend, path)
        return f"{verdict.code}{SEPARATOR}{verdict.detail}" if verdict.code else None
    except WorkerError as error:
        return f"{NO_ANSWER}: {error}"


def _can_stand_alone(graph: Graph, node: Node) -> bool:
    """Whether a node means the same outside its graph: a body captures, and shape arithmetic is settled inside."""
    return not any(True for _ in bodies(node.op)) and graph.shape_arithmetic.isdisjoint(node.reads)


def _hash(node: Node) -> str:
    return hashlib.sha256(repr(node.signature.key).encode()).hexdigest()
