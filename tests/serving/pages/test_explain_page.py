"""The page that ``trtnode explain --html`` writes: what it holds."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.partition.graphs import FAMILIES, generate, supports
from tests.serving.pages.explain_samples import HOSTILE, MODEL, Page, chain, cut, long_chain, page_of
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import Partition, partition_graph
from trtnode.partitioner.passes.rewrites.apply import Rewritten
from trtnode.partitioner.passes.rewrites.rules import Gain
from trtnode.serving.cli.program import main
from trtnode.serving.pages.drawing import columns, draw, shorten
from trtnode.serving.pages.explain_page import render_page
from trtnode.serving.pages.explain_tables import SHOWN_ROWS, group_native, segment_table

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def drawn(partition: Partition, kind: str) -> list[str]:
    return [vertex.title for vertex in draw(partition).vertices if vertex.kind == kind]


def test_the_page_asks_the_network_for_nothing() -> None:
    text = page_of(cut(MODEL, "Neg"))

    links = [
        attributes.get(key) for _, attributes in Page(text).elements for key in ("src", "href") if key in attributes
    ]
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|<link|<iframe", text)
    assert "default-src 'none'" in text


def test_names_are_text_and_never_markup() -> None:
    text = page_of(cut(chain(*(("Neg" if i % 2 else "Relu", name) for i, name in enumerate(HOSTILE))), "Neg"))

    page = Page(text)
    assert page.data["nodes"]["name"] == HOSTILE
    assert "throw" not in page.scripts[1]
    assert all(name in page.text for name in HOSTILE)
    assert not any("onmouseover" in attributes for _, attributes in page.elements)
    assert not any(tag == "img" for tag, _ in page.elements)


def test_what_was_measured_is_drawn_as_bars_before_and_after() -> None:
    partition = cut(MODEL, "Neg")
    times = (("minimum cut", 1.5, ["s"]), ("faster engines", 1.5, ["s"]), ("all native", 6.0, []))
    tuning = {
        "candidates": [{"name": name, "p50_ms": ms, "segments": segments} for name, ms, segments in times],
        "chosen": "minimum cut",
        "border": {"elements": 1200, "shapes": {"x": [1, 300]}, "gain": 0.8},
    }
    report = dataclasses.replace(partition.report(model="m.onnx", engine="openvino"), tuning=tuning)

    page = Page(render_page(partition, report))

    bars = [str(a["style"]).partition("width: ")[2] for _, a in page.elements if a.get("class") == "bar"]
    assert bars == ["100.0%", "25.0%"]
    assert re.search(r"natively\s+6.00 ms\s+with all engines\s+kept\s+1.50 ms", page.text)
    assert "Requests of fewer than 1,200 input elements run natively." in page.text
    assert "Before and after" not in page_of(partition)


def test_every_segment_and_every_native_node_is_there() -> None:
    partition = cut(MODEL, "Neg")

    page = Page(page_of(partition))

    links = {attributes.get("href") for _, attributes in page.elements}
    assert {f"#segment={segment.name}" for segment in partition.segments} <= links
    assert {"#node=stop_a", "#node=stop_b", "#find=UNSUPPORTED_OP", "#split=0", "#split=1"} <= links
    assert len(page.with_class("vertex", "engine")) == 5
    assert len(page.with_class("vertex", "native")) == 2
    assert len(page.with_class("vertex", "input")) == 1
    assert len(page.with_class("vertex", "output")) == 2
    assert "float32[2, 3]" in page.text


def test_nodes_of_unknown_shape_are_listed_under_one_cause() -> None:
    model = """<ir_version: 10, opset_import: ["": 17, "mine": 1]> g (float[2] x) => (float[A] y) {
        [odd] a = mine.Special(x) b = Neg(a) c = Abs(b) y = Neg(c)
    }"""

    assert " 3: Shapes are unknown after 'odd', Special of domain 'mine'." in Page(page_of(cut(model))).text


@pytest.mark.parametrize(
    ("compiled_before", "sentence"),
    [
        pytest.param(True, "Segments are as compile has built and checked them here.", id="compiled"),
        pytest.param(False, "Nothing was built for them here", id="not-compiled"),
    ],
)
def test_the_page_says_whether_its_segments_were_built(compiled_before: bool, sentence: str) -> None:
    partition = cut(MODEL, "Neg")
    report = partition.report(model="m.onnx", engine="openvino")

    page = Page(render_page(partition, dataclasses.replace(report, compiled_before=compiled_before)))

    assert sentence in page.text
    assert sentence not in Page(render_page(partition, report)).text


def test_the_same_partition_gives_the_same_page() -> None:
    assert page_of(cut(MODEL, "Neg")) == page_of(cut(MODEL, "Neg"))


def test_a_large_graph_is_drawn_by_segment() -> None:
    partition = cut(long_chain(2100), "Neg")

    page = Page(page_of(partition))

    assert drawn(partition, "engine") == [segment.name for segment in partition.segments]
    assert drawn(partition, "native") == ["native"] * 105
    assert page.data["nodes"]["name"] == [node.name for node in partition.graph.nodes]


def test_a_graph_of_many_segments_is_drawn_by_neighbouring_levels() -> None:
    drawing = draw(cut(long_chain(100), "Neg"), most_nodes=50, most_groups=3)

    titles = [(vertex.kind, vertex.title, vertex.subtitle) for vertex in drawing.vertices[1:-1]]
    assert titles == [
        ("mixed", "segment_0", "20 nodes, 1 native"),
        ("mixed", "segment_1 to 2", "40 nodes, 2 native"),
        ("mixed", "segment_3 to 4", "40 nodes, 2 native"),
    ]
    assert list(drawing.edges) == [(i, i + 1) for i in range(4)]


def test_connected_native_nodes_of_one_level_share_a_box() -> None:
    model = chain(("Relu", "a"), ("Neg", "b"), ("Neg", "c"), ("Relu", "d"), ("Neg", "e"))

    drawing = draw(cut(model, "Neg"), most_nodes=4)

    assert [v.title for v in drawing.vertices] == ["input", "segment_0", "2 native", "segment_1", "native", "output"]
    assert list(drawing.edges) == [(i, i + 1) for i in range(5)]


@pytest.mark.parametrize(
    ("model", "native", "boxes"),
    [
        pytest.param("g (float[2] x) => (float[2] x) { }", (), 2, id="no-nodes"),
        pytest.param("g (float[2] x) => (float[2] y) { y = Relu(x) }", (), 3, id="one-node"),
        pytest.param("g (float[2] x) => (float[2] y) { y = Relu(x) }", ("Relu",), 3, id="no-segments"),
        pytest.param("g (float[2] x, float[2] unused) => (float[2] y) { y = Relu(x) }", (), 4, id="unused-input"),
        pytest.param(
            "g (float[2] x, float[1] w) => (float[2] y) <float[1] w = {1}> { y = Relu(x) }", (), 3, id="default"
        ),
        pytest.param("g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x, x) }", (), 3, id="sequence"),
    ],
)
def test_small_and_odd_models_have_a_page(model: str, native: tuple[str, ...], boxes: int) -> None:
    page = Page(page_of(cut(f'<ir_version: 10, opset_import: ["": 17]> {model}', *native)))

    assert len(page.with_class("vertex")) == boxes


def test_sections_stand_where_there_are_facts_for_them() -> None:
    headings = ("Segments", "Native nodes", "Splits", "Boundary tensors")

    partly, whole = Page(page_of(cut(MODEL, "Neg"))).text, Page(page_of(cut(MODEL))).text

    assert all(heading in partly for heading in headings)
    assert [heading for heading in headings if heading in whole] == ["Segments", "Boundary tensors"]
    assert all(fact in partly for fact in ("engine ms", "saves ms", "cross per run"))


def test_rewrites_are_told_with_their_gains() -> None:
    partition = cut(MODEL)
    report = partition.report(model="m.onnx", engine="openvino")
    merged = Rewritten(rule="branches", nodes=("conv_a", "conv_b"), gain=Gain(4.15, 1.19))

    page = Page(render_page(partition, dataclasses.replace(report, rewrites=(merged,))))

    assert re.search(r"branches\s*2\s*4\.15\s*1\.19", page.text)
    assert "Rewrites" not in Page(render_page(partition, report)).text


@pytest.mark.parametrize(("size", "told"), [("N", True), ("8", False)])
def test_bytes_of_tensors_without_a_size_are_the_least(size: str, told: bool) -> None:
    model = f'<ir_version: 10, opset_import: ["": 17]> g (float[{size},8] x) => (float[{size},8] y) {{ y = Relu(x) }}'

    text = Page(page_of(cut(model))).text

    assert ("≥ 32" in text) is told  # each; all of them above
    assert ("Dimensions without a size count as 1." in text) is told


def test_bytes_have_the_units_of_the_terminal() -> None:
    text = Page(
        page_of(cut('<ir_version: 10, opset_import: ["": 17]> g (float[800] x) => (float[800] y) { y = Relu(x) }'))
    ).text

    assert "6.4 kB" in text


def test_nodes_that_follow_others_stand_after_their_causes() -> None:
    causes = [("ATOMIC_GROUP", "b"), ("ATOMIC_GROUP", "c"), ("UNSUPPORTED_DTYPE", "a")]

    groups = group_native([{"code": code, "op_type": "Relu", "detail": "", "node": node} for code, node in causes])

    assert [group.code for group in groups] == ["UNSUPPORTED_DTYPE", "ATOMIC_GROUP"]


def test_reasons_that_differ_only_in_names_are_one_cause() -> None:
    names = {f"x{i}" for i in range(9)}
    native = [
        {"code": "UNSUPPORTED_RANK", "op_type": "Neg", "detail": f"{name!r} has no 'elements'.", "node": f"of {name}"}
        for name in sorted(names)
    ]

    ((many,), (few,)) = (group.reasons for group in (*group_native(native, names), *group_native(native[:1], names)))

    assert (many.detail, len(many.nodes)) == ("… has no 'elements'.", 9)
    assert many.table().rows[2] == (("nodes", "of x2"), "'x2' has no 'elements'.")
    assert (few.detail, few.table().rows) == ("'x0' has no 'elements'.", [[("nodes", "of x0")]])


def test_segments_that_lose_time_are_marked_and_all_are_added_up() -> None:
    segments = [
        {"name": f"segment_{i}", "nodes": ["a", "b"], "inputs": ["x"], "outputs": ["y"], "estimate": estimate}
        for i, estimate in enumerate([{"native_ms": 2.0, "engine_ms": 0.5}, {"native_ms": 0.1, "engine_ms": 0.3}])
    ]

    table = segment_table(segments)

    assert [row[-1] for row in table.rows] == ["1.500", ("loss", "\N{MINUS SIGN}0.200")]
    assert table.sums == ("all", "4", "", "", "2.100", "0.800", "1.300")
    assert all(column.label for column in table.columns)


def test_long_lists_are_folded() -> None:
    page = Page(page_of(cut(long_chain(2100), "Neg")))

    shown = [a["href"] for tag, a in page.elements if tag == "a" and a.get("href", "").startswith("#segment=")]
    assert len(page.data["folded"]["segments"]) == 105 - SHOWN_ROWS
    assert "75 more" in page.text
    assert "#segment=segment_29" in shown
    assert "#segment=segment_95" not in shown


def test_lines_that_would_hide_the_picture_are_left_out_and_counted() -> None:
    calls = [helper.make_node("Abs", ["x"], [f"y{i}"], name=f"n{i}") for i in range(100)]
    x, *results = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ["x", *(f"y{i}" for i in range(100))]
    )
    graph = helper.make_graph(calls, "g", [x], results)
    partition = cut(onnx.ModelProto(ir_version=8, graph=graph, opset_import=[helper.make_opsetid("", 17)]))

    drawing = draw(partition)

    assert [vertex.title for vertex in drawing.vertices][-1] == "100 outputs"
    assert (len(drawing.edges), drawing.hidden_edges) == (101, 99)
    assert "99 lines of crowded boxes left out" in Page(page_of(partition)).text


@pytest.mark.parametrize("native_share", [pytest.param(0.1, id="many-segments"), pytest.param(0.0, id="one-segment")])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_page_of_a_large_graph_stays_small(family: str, native_share: float) -> None:
    graph = generate(family, size=10_000, native_share=native_share)

    text = page_of(partition_graph(graph, supports, PartitionOptions()))

    assert len(text) < 700_000


def test_labels_that_no_library_has_confirmed_are_told() -> None:
    partition = cut(MODEL)
    report = dataclasses.replace(
        partition.report(model="m", engine="tensorrt-rtx"), labelled_by="the table; no library"
    )

    assert "Labelled by the table; no library" in Page(render_page(partition, report)).text


@pytest.mark.parametrize("name", ["/encoder/layer.0/attention/MatMul_12", "節" * 30, "short", ""])
def test_long_names_keep_their_end(name: str) -> None:
    short = shorten(name)

    assert columns(short) <= 22
    assert short == name or (short[0] == "…" and columns(short) > 20 and name.endswith(short[1:]))


def test_the_command_writes_the_page_and_says_where(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", str(DIGITS), "--native-ops", "Relu", "--html", str(tmp_path / "page.html")])

    assert code == 0
    assert f"Wrote {tmp_path / 'page.html'}" in capsys.readouterr().out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_command_writes_the_page_beside_json(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(DIGITS), "--json", "--html", str(tmp_path / "page.html")])

    assert json.loads(capsys.readouterr().out)["nodes"] == 10
    assert (tmp_path / "page.html").exists()


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", str(DIGITS), "--html", str(tmp_path / "absent" / "page.html")])

    printed = capsys.readouterr()
    assert code == 1
    assert "page.html: can't be written" in printed.err
    assert printed.out == ""
