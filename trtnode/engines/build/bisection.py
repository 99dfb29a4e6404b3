"""Finds the nodes for which a segment is refused, so that they run natively and the rest of it keeps its engine.

Slices of a segment in topological order are tried one after the other. A segment is convex: every path between two of
its nodes stays inside and follows that order. So every slice is convex too and can be built by itself.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from trtnode.engines.artifact.refusal import Refusal
from trtnode.partitioner.cut.segments import Segment, values_leaving, values_read
from trtnode.partitioner.graph.view import Graph

Trial = Callable[[Segment, float], Refusal | None]
"""Tries a slice within some seconds. Gives None where it is accepted, else the refusal."""

TRIAL_SHARE, LEAST_TRIAL_S = 0.25, 10.0
"""Share of the time left that one trial may take, and the seconds that it may take in any case. A slice that never ends
thus leaves time for the others, and one that has to wait for a busy machine isn't blamed for that."""


@dataclasses.dataclass(slots=True)
class Budget:
    """The most that all searches of one compilation may cost together. Restarts of a crashed child count."""

    trials: int = 64
    seconds: float = 120.0

    @property
    def is_spent(self) -> bool:
        """True if nothing is left for another trial."""
        return self.trials <= 0 or self.seconds <= 0


def find_culprits(graph: Graph, segment: Segment, refusal: Refusal, trial: Trial, budget: Budget) -> Refusal:
    """Search a refused segment for the nodes that cause it.

    Args:
        graph: Where the segment is.
        segment: The refused segment.
        refusal: The reason.
        trial: Tries a slice of the segment in the same way.
        budget: The search is charged to it. Once it is spent, an undivided slice is blamed as a whole.

    Returns:
        The refusal, with its culprits. It is lasting if every refusal on the way was.
    """
    search = _Search(graph, segment, trial, budget)
    blamed = search.blame(0, len(segment.nodes), refusal)
    culprits = tuple((position, one.detail, one.code) for position, one in sorted(blamed.items()))
    return dataclasses.replace(refusal, culprits=culprits, lasting=refusal.lasting and search.lasting)


class _Search:
    def __init__(self, graph: Graph, segment: Segment, trial: Trial, budget: Budget) -> None:
        self.lasting = True
        self._graph = graph
        self._segment = segment
        self._trial = trial
        self._budget = budget

    def blame(self, start: int, stop: int, refusal: Refusal) -> dict[int, Refusal]:
        """Return the culprits in a refused slice: the reason for each, by position in the segment."""
        if stop - start == 1:
            return {start: refusal}
        if self._budget.is_spent:
            self.lasting = False  # a machine with more time may find more
            return dict.fromkeys(range(start, stop), _unsearched(refusal, stop - start))
        middle = (start + stop) // 2
        halves = ((start, middle), (middle, stop))
        refusals = [self._try(*half) for half in halves]
        if refusals == [None, None]:
            return self._end_prefix(start, middle, stop, refusal)
        found: dict[int, Refusal] = {}
        for half, refused in zip(halves, refusals, strict=True):
            if refused is not None:
                found.update(self.blame(*half, refused))
        return found

    def _end_prefix(self, start: int, accepted: int, stop: int, refusal: Refusal) -> dict[int, Refusal]:
        """Return the last node of the shortest refused prefix of a slice whose halves are accepted.

        All before it then keep one engine. Those behind it are cut and tried anew.
        """
        while stop - accepted > 1:
            if self._budget.is_spent:
                self.lasting = False
                return dict.fromkeys(range(accepted, stop), _unsearched(refusal, stop - accepted))
            middle = (accepted + stop) // 2
            refused = self._try(start, middle)
            if refused is None:
                accepted = middle
            else:
                stop, refusal = middle, refused
        return {accepted: _together(refusal, accepted - start)}

    def _try(self, start: int, stop: int) -> Refusal | None:
        part = self._slice(start, stop)
        if not part.inputs:
            return None  # it computes from constants alone, and libraries refuse any model without inputs
        began = time.monotonic()
        refusal = self._trial(part, max(LEAST_TRIAL_S, self._budget.seconds * TRIAL_SHARE))
        self._budget.trials -= 1
        self._budget.seconds -= time.monotonic() - began
        self.lasting &= refusal is None or refusal.lasting
        return refusal

    def _slice(self, start: int, stop: int) -> Segment:
        nodes = self._segment.nodes[start:stop]
        outputs = values_leaving(self._graph, nodes)
        return dataclasses.replace(self._segment, nodes=nodes, inputs=values_read(nodes), outputs=outputs)


def _together(refusal: Refusal, nodes: int) -> Refusal:
    words = f"It is refused together with the {nodes} nodes before it, which are accepted without it: {refusal.detail}"
    return dataclasses.replace(refusal, detail=words)


def _unsearched(refusal: Refusal, nodes: int) -> Refusal:
    words = f"{refusal.detail} Which of {nodes} nodes causes it was not searched any further."
    return dataclasses.replace(refusal, detail=words)
