"""The nodes after which shapes are unknown: the cause of every node that runs natively for want of a shape."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from trtnode.partitioner.cut.labels import ReasonCode, Verdict
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.values import ONNX_DOMAINS, is_unknown


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnknownShapes:
    """A node, or an input of the model, whose shapes nobody can infer.

    Attributes:
        after: Its identity, or the input's name.
        op_type: Its operator; empty for an input.
        domain: The operator's domain; ONNX's own is the empty string.
        nodes: Number of nodes that run natively because of it.
    """

    after: str
    op_type: str
    domain: str
    nodes: int = 0

    @property
    def cause(self) -> str:
        """Say after what shapes are unknown."""
        if not self.op_type:
            return f"Shapes are unknown after input {self.after!r}."
        of = f" of domain {self.domain!r}" if self.domain else ": the rank of its result is known only when it has run"
        return f"Shapes are unknown after {self.after!r}, {self.op_type}{of}."


def find_unknown_shapes(graph: Graph, labels: Mapping[str, Verdict]) -> dict[str, UnknownShapes]:
    """Find the cause for each node that runs natively for want of a shape, by the node's identity.

    A node whose inputs have shapes and whose outputs have none is the cause for all nodes behind it, up to where shapes
    are known again. It may run natively for another reason, or lack a rule of inference.
    """
    waiting = [name for name, verdict in labels.items() if verdict.code is ReasonCode.UNKNOWN_SHAPE]
    if not waiting:
        return {}
    inputs = [value for value in graph.inputs if is_unknown(value)]
    causes = {value: UnknownShapes(after=value.name or "", op_type="", domain="") for value in inputs}
    behind: dict[str, UnknownShapes] = {}
    for node in graph.nodes:
        domain = "" if node.domain in ONNX_DOMAINS else node.domain
        itself = UnknownShapes(after=node.name, op_type=node.op_type, domain=domain)
        behind[node.name] = next((causes[value] for value in node.reads if value in causes), itself)
        causes.update({value: behind[node.name] for value in node.op.outputs if value.name and is_unknown(value)})
    counts = collections.Counter(behind[name] for name in waiting)
    counted = {cause: dataclasses.replace(cause, nodes=count) for cause, count in counts.items()}
    return {name: counted[behind[name]] for name in waiting}
