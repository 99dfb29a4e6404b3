"""The benchmark of the cut: graphs, scores, targets and other systems."""

from __future__ import annotations

import dataclasses
import functools
import json

import pytest

from benchmarks.partition import __main__ as program
from benchmarks.partition import graphs, peers
from benchmarks.partition.labelled_graph import LabelledGraph
from benchmarks.partition.measure import OURS
from benchmarks.partition.score import is_legal, minimum_segments, score
from benchmarks.partition.whole_command import EXPLAIN, ORT, PAGE, measure_commands
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import partition_graph


def labelled_graph(*nodes: str) -> LabelledGraph:
    """A graph of nodes that each make a value of their own name, of four bytes: ``"c a b"`` reads a and b.

    Capital letters are native.
    """
    reads = {node[0]: tuple(node.split()[1:]) for node in nodes}
    return LabelledGraph(
        reads=reads,
        writes={name: (name,) for name in reads},
        supported=frozenset(name for name in reads if name.islower()),
        sizes=dict.fromkeys(reads, 4),
    )


CHAIN = labelled_graph("a x", "b a", "C b", "d C", "e d")


@pytest.fixture(params=[pytest.param(peer, id=peer.name) for peer in peers.PEERS])
def driver(request: pytest.FixtureRequest) -> peers.Prepare:
    found = peers.load(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def test_every_peer_cuts_a_chain_in_two(driver: peers.Prepare) -> None:
    cut = driver(CHAIN)()

    assert cut.segments == 2
    assert is_legal(CHAIN, cut.groups)


def test_an_absent_peer_is_a_sentence() -> None:
    absent = dataclasses.replace(peers.TORCH_FX, module="benchmarks.partition.no_such_module")

    assert "torch.fx is left out" in peers.load(absent)


@pytest.mark.parametrize("family", graphs.FAMILIES)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_our_cut_is_minimal_and_crosses_no_more_than_the_helper_s(family: str, share: float) -> None:
    graph = graphs.generate(family, size=300, native_share=share)
    partition = partition_graph(graph, graphs.supports, PartitionOptions())
    labelled = LabelledGraph.of(graph, [name for name, verdict in partition.labels.items() if verdict.supported])
    helper = score(labelled, peers.load(peers.ORT_HELPER)(labelled)().groups)

    ours = score(labelled, [[node.name for node in segment.nodes] for segment in partition.segments])

    assert ours.segments == minimum_segments(labelled)
    assert ours.legal
    assert ours.coverage == 1.0
    assert ours.crossing_tensors <= helper.crossing_tensors


def test_each_method_runs_in_processes_of_its_own() -> None:
    rows = measure_commands(["local"], sizes=[30], turns=1)

    assert [(row.source, row.method) for row in rows] == [("local", method) for method in (EXPLAIN, PAGE, ORT)]
    assert all(row.cpu_s > 0 for row in rows)
    assert all(row.page_bytes for row in rows if row.method == PAGE)


def test_the_program_prints_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "measure", functools.partial(program.measure, turns=1))
    monkeypatch.setattr("sys.argv", ["partition", "--json", "--sizes", "60", "--only", "local"])

    status = program.main()

    result = json.loads(capsys.readouterr().out)
    assert status == 0
    assert {(r["method"], r["nodes"]) for r in result["rows"]} == {(OURS, 60), ("ORT helper", 60)}
    assert result["left_out"] == []
