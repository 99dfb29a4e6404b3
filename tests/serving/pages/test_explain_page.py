"""The page that ``trtnode explain --html`` writes: what it holds, and, in a real browser, what it does."""

from __future__ import annotations

import base64
import dataclasses
import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.partition.graphs import FAMILIES, generate, supports
from partitioner import SUPPORTED, Partition, PartitionOptions, ReasonCode, Verdict, clean_up, partition_graph
from partitioner.model.loading import view_model
from serving.cli.program import main
from serving.pages.drawing import columns, draw, shorten
from serving.pages.explain_page import render_page
from serving.pages.explain_tables import SHOWN_ROWS, group_native, segment_table

pytestmark = pytest.mark.usefixtures("one_builder")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
HOSTILE = [
    "</script><script>throw 1</script>",
    "\" onmouseover='throw 2",
    "&lt;b&amp; <img src=x>",
    "節点{{ 7*7 }}",
    "a+b %41#",
]
MODEL = """<ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {
    [conv_a] a = Relu(x)
    [stop_a] b = Neg(a)
    [conv_b] c = Relu(b)
    [skip] d = Add(a, c)
    [stop_b] e = Neg(d)
    [last] y = Add(e, d)
    [aside] z = Abs(x)
}"""


class Page(html.parser.HTMLParser):
    """A page's elements, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside != "style":
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script knows."""
        return json.loads(zlib.decompress(base64.b64decode(self.scripts[0])))

    def root(self, name: str) -> str | None:
        return self.elements[0][1].get(f"data-{name}")

    def with_class(self, *names: str) -> list[int]:
        """Positions of the boxes and edges of the picture that have all of these classes."""
        return [
            int(attributes["data-index"] or 0)
            for _, attributes in self.elements
            if "data-index" in attributes and {*names} <= set((attributes.get("class") or "").split())
        ]


def cut(model: str | onnx.ModelProto, *native: str) -> Partition:
    """Partition a model for an engine that refuses the operators named."""
    proto = onnx.parser.parse_model(model) if isinstance(model, str) else model
    refused = Verdict(ReasonCode.UNSUPPORTED_OP, "The engine of this test has no such operator.")
    graph = clean_up(view_model(proto, pathlib.Path("model.onnx")))
    return partition_graph(graph, lambda node: refused if node.op_type in native else SUPPORTED, PartitionOptions())


def page_of(partition: Partition) -> str:
    return render_page(partition, partition.report(model="m.onnx", engine="openvino"))


def chain(*nodes: tuple[str, str]) -> onnx.ModelProto:
    """A chain of nodes, given by operator and name; each tensor is named like the node that writes it."""
    values = ["x", *(name for _, name in nodes)]
    calls = [helper.make_node(op, [values[i]], [values[i + 1]], name=name) for i, (op, name) in enumerate(nodes)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in (values[0], values[-1])]
    graph = helper.make_graph(calls, "g", ends[:1], ends[1:])
    return onnx.ModelProto(ir_version=8, graph=graph, opset_import=[helper.make_opsetid("", 17)])


def long_chain(count: int) -> onnx.ModelProto:
    return chain(*(("Neg" if i % 20 == 19 else "Relu", f"/layer.{i // 20}/node_{i}") for i in range(count)))


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
    headings = ("Segments", "Native nodes", "Splits", "What if an operator were supported?", "Boundary tensors")

    partly, whole = Page(page_of(cut(MODEL, "Neg"))).text, Page(page_of(cut(MODEL))).text

    assert all(heading in partly for heading in headings)
    assert [heading for heading in headings if heading in whole] == ["Segments", "Boundary tensors"]
    assert all(fact in partly for fact in ("engine ms", "saves ms", "cross per run", "instead of 3"))


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
    assert many.table().rows[2] == [("nodes", "of x2"), "'x2' has no 'elements'."]
    assert (few.detail, few.table().rows) == ("'x0' has no 'elements'.", [[("nodes", "of x0")]])


def test_segments_that_lose_time_are_marked_and_all_are_added_up() -> None:
    segments = [
        {"name": f"segment_{i}", "nodes": ["a", "b"], "inputs": ["x"], "outputs": ["y"], "estimate": estimate}
        for i, estimate in enumerate([{"native_ms": 2.0, "engine_ms": 0.5}, {"native_ms": 0.1, "engine_ms": 0.3}])
    ]

    table = segment_table(segments)

    assert [row[-1] for row in table.rows] == ["1.500", ("loss", "−0.200")]
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
    assert (len(drawing.edges), drawing.hidden_edges) == (2, 198)
    assert "198 lines of crowded boxes left out" in Page(page_of(partition)).text


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

    assert json.loads(capsys.readouterr().out)["nodes"] == 13
    assert (tmp_path / "page.html").exists()


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", str(DIGITS), "--html", str(tmp_path / "absent" / "page.html")])

    printed = capsys.readouterr()
    assert code == 1
    assert "page.html: can't be written" in printed.err
    assert printed.out == ""


@pytest.fixture
def browse(tmp_path: pathlib.Path) -> Callable[..., Page]:
    """Open a page in Chromium, let it come to rest, and read it back."""
    if BROWSER is None:
        pytest.skip("no Chromium here")

    def browse(text: str, fragment: str = "", *, act: str = "", width: int = 1600) -> Page:
        if act:  # the page's own policy would refuse the script that stands in for the user
            text = text.replace('http-equiv="Content-Security-Policy"', "")
            text += f"""<script>
                new MutationObserver((_, observer) => {{
                    if (!document.documentElement.dataset.ready) return;
                    observer.disconnect();
                    {act}
                }}).observe(document.documentElement, {{attributes: true}});
            </script>"""
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        quiet = (
            "no-first-run disable-gpu disable-quic disable-background-networking disable-component-update disable-sync"
        )
        command = [BROWSER, "--headless", "--no-sandbox", *(f"--{option}" for option in quiet.split())]
        command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1000"]
        command += ["--virtual-time-budget=60000"]
        done = subprocess.run(
            [*command, "--dump-dom", f"{path.as_uri()}{fragment}"], check=True, capture_output=True, timeout=90
        )
        page = Page(done.stdout.decode())
        assert (page.root("ready"), page.root("errors")) == ("true", "")
        return page

    return browse


@pytest.mark.browser
def test_search_marks_what_matches_and_counts_it(browse: Callable[..., Page]) -> None:
    page = browse(page_of(cut(MODEL, "Neg")), "#find=CONV&at=2")

    assert page.root("matches") == "2"
    assert page.with_class("vertex", "hit") == [1, 3]
    assert page.with_class("vertex", "current") == [3]
    assert "2 of 2 nodes" in page.text


@pytest.mark.browser
@pytest.mark.parametrize(
    ("fragment", "hits", "told"),
    [
        pytest.param("#node=stop_a", [2], "The engine of this test has no such operator.", id="node"),
        pytest.param("#segment=segment_1", [3, 4], "segment_1", id="segment"),
        pytest.param("#tensor=a", [1, 2, 4], "written by conv_a", id="tensor"),
        pytest.param("#node=absent", [], "stop_a", id="unknown-node"),
    ],
)
def test_a_link_shows_what_it_names(browse: Callable[..., Page], fragment: str, hits: list[int], told: str) -> None:
    page = browse(page_of(cut(MODEL, "Neg")), fragment)

    assert page.with_class("vertex", "hit") == hits
    assert told in page.text


@pytest.mark.browser
def test_a_split_shows_its_path(browse: Callable[..., Page]) -> None:
    page = browse(page_of(cut(MODEL, "Neg")), "#split=0")

    (shown,) = [a for tag, a in page.elements if tag == "a" and a.get("aria-current") == "true"]
    lit = [a for tag, a in page.elements if tag == "path" and "lit" in (a.get("class") or "")]
    assert page.with_class("vertex", "hit") == [1, 2, 3]
    assert shown["href"] == "#split=0"
    assert len(lit) == 2


@pytest.mark.browser
def test_a_reader_can_click_zoom_and_step_through_matches(browse: Callable[..., Page]) -> None:
    press = "new KeyboardEvent('keydown', {key: 'Enter'})"
    act = f"""
        const graph = document.getElementById("graph"), field = document.getElementById("find");
        const before = graph.style.transform;
        const turn = {{bubbles: true, cancelable: true, deltaY: -200, clientX: 300, clientY: 300}};
        graph.dispatchEvent(new WheelEvent("wheel", turn));
        document.documentElement.dataset.zoomed = before !== graph.style.transform;
        const box = document.querySelector('.vertex[data-index="2"] rect');
        for (const kind of ["pointerdown", "pointerup"]) {{
            box.dispatchEvent(new PointerEvent(kind, {{bubbles: true, button: 0, pointerId: 1}}));
        }}
        document.documentElement.dataset.clicked = location.hash;
        field.value = "relu";
        field.dispatchEvent(new InputEvent("input"));
        for (let i = 0; i < 3; i++) field.dispatchEvent({press});
        document.documentElement.dataset.stepped = location.hash;"""

    page = browse(page_of(cut(MODEL, "Neg")), act=act)

    assert page.root("zoomed") == "true"
    assert page.root("clicked") == "#node=stop_a"
    assert page.root("stepped") == "#find=relu&at=1"
    assert page.with_class("vertex", "current") == [1]


@pytest.mark.browser
def test_names_do_no_harm_in_a_browser(browse: Callable[..., Page]) -> None:
    text = page_of(cut(chain(*(("Neg" if i % 2 else "Relu", name) for i, name in enumerate(HOSTILE))), "Neg"))
    (last,) = [a["href"] for tag, a in Page(text).elements if a.get("href", "").startswith("#split=1")]

    page = browse(text, last)

    assert len(page.with_class("vertex", "hit")) == 3


@pytest.mark.browser
@pytest.mark.parametrize("nodes", [pytest.param(2000, id="by-node"), pytest.param(2100, id="by-segment")])
def test_a_large_page_becomes_ready(browse: Callable[..., Page], nodes: int) -> None:
    page = browse(page_of(cut(long_chain(nodes), "Neg")), "#find=node_77")

    assert page.root("matches") == str(sum("node_77" in f"node_{i} node_{i - 1}" for i in range(nodes)))


@pytest.mark.browser
def test_buttons_step_through_matches_which_the_overview_shows(browse: Callable[..., Page]) -> None:
    act = """
        const root = document.documentElement, map = document.getElementById("overview");
        const accent = () => {
            const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
            let pixels = 0;
            for (let i = 0; i < data.length; i += 4) pixels += data[i] === 194 && data[i + 1] === 65 && data[i + 2] === 12;
            return pixels;
        };
        root.dataset.before = accent();
        root.dataset.disabled = document.getElementById("next").disabled;
        location.hash = "#find=Neg";
        addEventListener("hashchange", () => {
            for (const id of ["next", "next", "previous", "previous"]) document.getElementById(id).click();
            root.dataset.after = accent() > 0;
            root.dataset.stepped = location.hash;
        });"""

    page = browse(page_of(cut(long_chain(200), "Neg")), act=act)

    assert (page.root("before"), page.root("disabled")) == ("0", "true")
    assert (page.root("after"), page.root("stepped")) == ("true", "#find=Neg&at=10")
    assert "10 of 10 nodes" in page.text


@pytest.mark.browser
def test_the_page_opens_on_the_graph(browse: Callable[..., Page]) -> None:
    unread = ", ".join(f"float[2] unread_{i}" for i in range(50))
    ends = ", ".join(f"float[2] y{i}" for i in range(50))
    nodes = " ".join(f"b{i} = Relu(a) y{i} = Neg(b{i})" for i in range(50))
    chained = "a = Neg(x) " + nodes
    model = f'<ir_version: 10, opset_import: ["": 17]> g (float[2] x, {unread}) => ({ends}) {{ {chained} }}'
    act = """
        const pane = document.getElementById("pane").getBoundingClientRect();
        document.documentElement.dataset.seen = [...document.querySelectorAll(".vertex")].filter((vertex) => {
            const box = vertex.getBoundingClientRect();
            return box.left >= pane.left && box.right <= pane.right && box.top >= pane.top && box.bottom <= pane.bottom;
        }).map((vertex) => vertex.querySelector(".title").textContent).join();"""

    page = browse(page_of(cut(model, "Neg")), act=act, width=900)

    assert {"input", "Neg", "Relu"} <= set((page.root("seen") or "").split(","))
    assert "50 unread inputs" in page.text


@pytest.mark.browser
@pytest.mark.parametrize("width", [1440, 1200, 800, 500])
def test_no_table_is_cut_at_any_width(browse: Callable[..., Page], width: int) -> None:
    act = """
        document.documentElement.dataset.cut = [...document.querySelectorAll("body, header, aside, .table")]
            .filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.className || part.tagName).join();"""
    names = [("Neg" if i % 2 else "Relu", f"/model/encoder/layer.{i}/attention/self/MatMul_{i}") for i in range(9)]

    page = browse(page_of(cut(chain(*names), "Neg")), act=act, width=width)

    assert page.root("cut") == ""


@pytest.mark.browser
def test_folded_rows_are_shown_on_request(browse: Callable[..., Page]) -> None:
    act = """
        const button = document.querySelector('.more[data-name="segments"]');
        document.documentElement.dataset.said = button.textContent;
        while (!button.hidden) button.click();
        document.querySelectorAll(".more").forEach((other) => other.click());"""

    page = browse(page_of(cut(long_chain(6000), "Neg")), act=act)

    links = {attributes.get("href") for _, attributes in page.elements}
    assert page.root("said") == "200 more of 270"
    assert {f"#segment=segment_{i}" for i in range(300)} <= links
    assert {"#node=%2Flayer.99%2Fnode_1999", "#split=150", "#tensor=%2Flayer.99%2Fnode_1999"} <= links


@pytest.mark.browser
def test_a_model_without_nodes_has_a_working_page(browse: Callable[..., Page]) -> None:
    page = browse(page_of(cut('<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] x) { }')))

    assert "no nodes after clean-up" in page.text
