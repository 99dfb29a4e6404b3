"""The benchmark of the cut: graphs, scores, targets and other systems."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib

import onnx
import onnx_ir as ir
import pytest

from benchmarks.partition import __main__ as program
from benchmarks.partition import collection, graphs, peers, targets
from benchmarks.partition.labelled_graph import LabelledGraph
from benchmarks.partition.measure import OURS, CutRow
from benchmarks.partition.score import crossing_tensors, is_legal, minimum_segments, score, unavoidable_tensors
from benchmarks.partition.whole_command import EXPLAIN, ORT, PAGE, CommandRow, measure_commands
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
DIAMOND = labelled_graph("a x", "B a", "c a", "d B c")


@pytest.fixture(params=[pytest.param(peer, id=peer.name) for peer in peers.PEERS])
def driver(request: pytest.FixtureRequest) -> peers.Prepare:
    found = peers.load(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.mark.parametrize("family", graphs.FAMILIES)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_a_generated_graph_has_the_asked_size_and_share(family: str, share: float) -> None:
    graph = graphs.generate(family, size=400, native_share=share)

    assert len(graph.nodes) == 400
    assert sum(not graphs.supports(node).supported for node in graph.nodes) == 400 * share


@pytest.mark.parametrize("family", graphs.FAMILIES)
def test_a_generated_graph_is_valid_and_has_the_shapes_that_it_says(family: str) -> None:
    model = ir.to_proto(graphs.generate(family, size=200, native_share=0.1).model)

    onnx.checker.check_model(model, full_check=True)

    said = {value.name: value.type for value in model.graph.value_info}
    model.graph.ClearField("value_info")
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info
    assert {value.name: value.type for value in inferred}.items() <= said.items()


@pytest.mark.parametrize("family", graphs.FAMILIES)
def test_a_generated_graph_depends_on_its_arguments_alone(family: str) -> None:
    first, again, other = (
        ir.to_proto(graphs.generate(family, size=100, native_share=0.1, seed=seed).model) for seed in (1, 1, 2)
    )

    assert first.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert first != other


@pytest.mark.parametrize(
    ("labelled", "minimum"),
    [
        pytest.param(CHAIN, 2, id="a-native-node-splits-a-chain"),
        pytest.param(DIAMOND, 2, id="a-native-branch-splits-the-join-from-the-fork"),
        pytest.param(labelled_graph("a x", "B x", "c B", "D c", "e D a"), 2, id="the-path-that-alternates-most-counts"),
        pytest.param(labelled_graph("A x", "b A", "C b"), 1, id="native-ends-split-nothing"),
        pytest.param(labelled_graph("A x", "B A"), 0, id="nothing-supported"),
        pytest.param(labelled_graph("a", "B a", "c B x"), 2, id="a-constant-fed-node-counts"),
    ],
)
def test_the_exact_minimum(labelled: LabelledGraph, minimum: int) -> None:
    assert minimum_segments(labelled) == minimum


@pytest.mark.parametrize(
    ("labelled", "groups", "crossing"),
    [
        pytest.param(CHAIN, [("a", "b"), ("d", "e")], {"b", "C"}, id="into-and-out-of-a-native-node"),
        pytest.param(CHAIN, [("a",), ("b",), ("d", "e")], {"a", "b", "C"}, id="between-segments"),
        pytest.param(DIAMOND, [("a",), ("c", "d")], {"a", "B"}, id="once-for-two-readers"),
        pytest.param(labelled_graph("a x", "B a", "C a"), [("a",)], {"a"}, id="native-nodes-are-one-place"),
        pytest.param(labelled_graph("a x", "b x"), [("a",), ("b",)], set(), id="graph-inputs-and-outputs-do-not-count"),
    ],
)
def test_crossing_tensors(labelled: LabelledGraph, groups: list[tuple[str, ...]], crossing: set[str]) -> None:
    assert crossing_tensors(labelled, groups) == crossing


def test_unavoidable_tensors_have_a_reader_on_the_other_side() -> None:
    assert unavoidable_tensors(DIAMOND) == {"a", "B"}


@pytest.mark.parametrize(
    ("groups", "legal"),
    [
        pytest.param([("a", "c"), ("d",)], True, id="leaves-and-comes-not-back"),
        pytest.param([("a", "c", "d")], False, id="a-path-leaves-and-comes-back"),
        pytest.param([("a",), ("a", "c"), ("d",)], False, id="a-node-in-two-segments"),
        pytest.param([("a", "B")], False, id="a-native-node-in-a-segment"),
        pytest.param([], True, id="no-segments"),
    ],
)
def test_legality(groups: list[tuple[str, ...]], legal: bool) -> None:
    assert is_legal(DIAMOND, groups) is legal


def test_a_score_counts_what_is_left_out() -> None:
    found = score(CHAIN, (("a", "b"), ("d",)))

    assert (found.segments, found.crossing_tensors, found.crossing_bytes) == (2, 3, 12)
    assert found.coverage == 0.75


def test_the_onnxruntime_helper_gives_the_known_groups() -> None:
    prepare = peers.load(peers.ORT_HELPER)
    assert not isinstance(prepare, str)

    assert prepare(CHAIN)().groups == (("a", "b"), ("d", "e"))


def test_every_peer_cuts_a_chain_in_two(driver: peers.Prepare) -> None:
    cut = driver(CHAIN)()

    native = cut.groups is None  # it counts both sides
    assert cut.segments == 2 + native
    assert native or is_legal(CHAIN, cut.groups)


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


def row(method: str, *, nodes: int, crossing: int, ms: float) -> CutRow:
    found = score(CHAIN, (("a", "b"), ("d", "e")))
    return CutRow(
        source="local",
        nodes=nodes,
        native_share=0.1,
        method=method,
        segments=2,
        minimum=2,
        unavoidable=2,
        score=dataclasses.replace(found, crossing_tensors=crossing),
        ms=ms,
        turns=3,
    )


def test_targets_name_the_worst_graph_and_what_was_not_measured() -> None:
    rows = [
        row(OURS, nodes=10_000, crossing=4, ms=90),
        row(peers.ORT_HELPER.name, nodes=10_000, crossing=5, ms=1),
        row(OURS, nodes=100_000, crossing=6, ms=1800),
        row(peers.ORT_HELPER.name, nodes=100_000, crossing=5, ms=1),
    ]

    found = {target.text: target for target in targets.check_targets(rows)}

    helper = found["crossing tensors: at most the ORT helper's"]
    assert (helper.holds, helper.worst) == (False, "1.20 x (local, 100,000 nodes, 10% native)")
    growth = found["growth exponent from 10,000 to 100,000 nodes: at most 1.2"]
    assert (growth.holds, growth.worst) == (False, "1.30 (local, 100,000 nodes, 10% native)")
    assert found["label and cut 10,000 nodes: at most 100 ms"].holds
    assert found["crossing tensors of the families: at most torch.fx's"].holds is None


def test_whole_commands_are_compared_with_onnxruntime_s_load_of_the_same_file() -> None:
    def command(method: str, nodes: int, cpu_s: float, page_bytes: int | None = None) -> CommandRow:
        return CommandRow(
            source="local", nodes=nodes, native_share=0.1, method=method, cpu_s=cpu_s, wall_s=9.0, page_bytes=page_bytes
        )

    rows = [
        command(EXPLAIN, 20_000, 3.0),
        command(PAGE, 20_000, 1.0, 2_500_000),
        command(ORT, 20_000, 2.0),
        command(EXPLAIN, 100_000, 3.0),
        command(ORT, 100_000, 4.0),
    ]

    few, many, page = targets.check_commands(rows)

    assert (few.holds, few.worst) == (False, "1.50 x (local, 20,000 nodes, 10% native)")
    assert (many.holds, many.worst) == (True, "0.75 x (local, 100,000 nodes, 10% native)")
    assert (page.holds, page.worst) == (True, "2.50 MB (local, 20,000 nodes, 10% native)")


def test_each_method_runs_in_processes_of_its_own() -> None:
    rows = measure_commands(["local"], sizes=[30], turns=1)

    assert [(row.source, row.method) for row in rows] == [("local", method) for method in (EXPLAIN, PAGE, ORT)]
    assert all(row.cpu_s > 0 for row in rows)
    assert all(row.page_bytes for row in rows if row.method == PAGE)


def test_the_program_prints_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("TRTNODE_MODEL_COLLECTION", str(tmp_path / "absent"))
    monkeypatch.setattr(program, "measure", functools.partial(program.measure, turns=1))
    monkeypatch.setattr("sys.argv", ["partition", "--json", "--sizes", "60", "--only", "local,collection"])

    status = program.main()

    result = json.loads(capsys.readouterr().out)
    assert status == 0
    assert {(r["method"], r["nodes"]) for r in result["rows"]} == {(OURS, 60), ("ORT helper", 60)}
    assert result["left_out"] == ["Real models are left out: TRTNODE_MODEL_COLLECTION names no folder."]


def test_models_of_a_collection_are_cut_without_their_most_frequent_operators(tmp_path: pathlib.Path) -> None:
    (tmp_path / "chain").mkdir()
    (tmp_path / "broken").mkdir()
    body = " ".join(f"v{i + 1} = {'Relu' if i % 3 else 'Abs'}(v{i})" for i in range(12))
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[3] v0) => (float[3] v12) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "chain" / "model.onnx")
    (tmp_path / "broken" / "model.onnx").write_bytes(b"not a model")

    found = [(name, partition_graph(g, rule, PartitionOptions())) for name, g, rule in collection.graphs(tmp_path)]

    assert [(name, len(p.segments)) for name, p in found] == [("chain: Relu", 4), ("chain: Abs", 4)]
