"""Scores a cut, by the same definition for every method and without code of the partitioner."""

from __future__ import annotations

import collections
import dataclasses
import graphlib

from benchmarks.partition.labelled_graph import Groups, LabelledGraph


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Measures of a cut.

    Attributes:
        segments: Number of groups.
        crossing_tensors: Distinct tensors that a node produces in one place and a node reads in another. A place is a
            segment, or all native nodes. Each tensor counts once.
        crossing_bytes: Their bytes.
        coverage: Share of the supported nodes that are in segments.
        legal: True if the segments are disjoint, hold only supported nodes, and leave the graph without a cycle.
    """

    segments: int
    crossing_tensors: int
    crossing_bytes: int
    coverage: float
    legal: bool


def score(labelled: LabelledGraph, groups: Groups) -> Score:
    """Measure a cut."""
    crossing = crossing_tensors(labelled, groups)
    held = {node for group in groups for node in group} & labelled.supported
    return Score(
        segments=len(groups),
        crossing_tensors=len(crossing),
        crossing_bytes=sum(labelled.sizes.get(value, 0) for value in crossing),
        coverage=len(held) / len(labelled.supported) if labelled.supported else 1.0,
        legal=is_legal(labelled, groups),
    )


def minimum_segments(labelled: LabelledGraph) -> int:
    """Return the fewest segments of any legal cut: the most engine runs on any path.

    Nodes are visited from the last to the first, to count the runs on the paths that begin at each. Runs of one path
    that a native node separates can't share a segment, and one segment per run is enough (typed fusion: Kennedy and
    McKinley, Rice TR 1994).
    """
    after: dict[str, int] = collections.defaultdict(int)
    after_native: dict[str, int] = collections.defaultdict(int)
    most = 0
    predecessors = labelled.predecessors()
    for node in reversed(predecessors):
        inside = node in labelled.supported
        runs = max(after[node], after_native[node] + 1) if inside else max(after[node], after_native[node])
        most = max(most, runs)
        for before in predecessors[node]:
            ahead = after if inside else after_native
            ahead[before] = max(ahead[before], runs)
    return most


def crossing_tensors(labelled: LabelledGraph, groups: Groups) -> set[str]:
    """Return the tensors that ``Score.crossing_tensors`` counts."""
    place = {node: index for index, group in enumerate(groups) for node in group}
    producers = labelled.producers()
    return {
        value
        for node, values in labelled.reads.items()
        for value in values
        if value in producers and place.get(producers[value]) != place.get(node)
    }


def unavoidable_tensors(labelled: LabelledGraph) -> set[str]:
    """Return the tensors that cross in every cut of all supported nodes: those with a reader on the other side."""
    producers = labelled.producers()
    return {
        value
        for node, values in labelled.reads.items()
        for value in values
        if value in producers and (producers[value] in labelled.supported) != (node in labelled.supported)
    }


def is_legal(labelled: LabelledGraph, groups: Groups) -> bool:
    """Return whether each group can run as one segment: ``Score.legal``."""
    members = [node for group in groups for node in group]
    if len(set(members)) < len(members) or not labelled.supported.issuperset(members):
        return False
    piece: dict[str, str | int] = {node: index for index, group in enumerate(groups) for node in group}
    edges: dict[str | int, set[str | int]] = collections.defaultdict(set)
    for node, before in labelled.predecessors().items():
        after = piece.get(node, node)
        edges[after].update(other for p in before if (other := piece.get(p, p)) != after)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError:
        return False
    return True
