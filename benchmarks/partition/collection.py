"""Real models, each with rules of engines that refuse one of its most frequent operators."""

from __future__ import annotations

import collections
import gzip
import os
import pathlib
import tempfile
from collections.abc import Iterator

from trtnode.partitioner.cut.labels import SUPPORTED, Predicate, ReasonCode, Verdict
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph, Node
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up

BESIDE_THE_PROJECT = pathlib.Path(__file__).parents[3] / "shared" / "models"

FEWEST_NODES = 10
"""Least number of nodes of a model to cut."""

REFUSED_IN_TURN = 3
"""Number of a model's operators that are refused, one at a time, the most frequent first."""


def folder() -> pathlib.Path:
    """Return TRTNODE_MODEL_COLLECTION, or a folder beside the project, which need not exist."""
    return pathlib.Path(os.environ.get("TRTNODE_MODEL_COLLECTION", BESIDE_THE_PROJECT))


def graphs(root: pathlib.Path) -> Iterator[tuple[str, Graph, Predicate]]:
    """Yield every model below a folder that loads and is large enough, once per refused operator.

    Yields:
        Model and refused operator; the graph; the engine's rule.
    """
    for path in sorted(p for p in root.rglob("*") if p.name.endswith((".onnx", ".onnx.gz"))):
        try:
            graph = _load(path)
        except PartitionError:
            continue  # collections hold broken models too
        if len(graph.nodes) >= FEWEST_NODES:
            counts = collections.Counter(node.op_type for node in graph.nodes)
            for op_type, _ in counts.most_common(REFUSED_IN_TURN):
                yield f"{path.parent.relative_to(root)}: {op_type}", graph, _refusing(op_type)


def _load(path: pathlib.Path) -> Graph:
    if path.suffix != ".gz":
        return clean_up(load_model(path))
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as name:
        unpacked = pathlib.Path(name) / path.stem
        unpacked.write_bytes(gzip.decompress(path.read_bytes()))
        return clean_up(load_model(unpacked))


def _refusing(op_type: str) -> Predicate:
    refused = Verdict(ReasonCode.UNSUPPORTED_OP, f"The engine of this benchmark refuses {op_type}.")

    def rule(node: Node) -> Verdict:
        return refused if node.op_type == op_type else SUPPORTED

    return rule
