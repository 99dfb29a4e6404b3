"""The page that ``trtnode explain --html`` writes: what it does in a real browser."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from browser import DumpDom
from tests.serving.pages.explain_samples import HOSTILE, MODEL, Page, chain, cut, long_chain, page_of

pytestmark = pytest.mark.browser


@pytest.fixture
def browse(dump_dom: DumpDom, tmp_path: pathlib.Path) -> Callable[..., Page]:
    """Open a page in Chromium, let it come to rest, and read it back."""

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
        page = Page(dump_dom(f"{path.as_uri()}{fragment}", seconds=60, width=width))
        assert (page.root("ready"), page.root("errors")) == ("true", "")
        return page

    return browse


def test_search_marks_what_matches_and_counts_it(browse: Callable[..., Page]) -> None:
    page = browse(page_of(cut(MODEL, "Neg")), "#find=CONV&at=2")

    assert page.root("matches") == "2"
    assert page.with_class("vertex", "hit") == [1, 3]
    assert page.with_class("vertex", "current") == [3]
    assert "2 of 2 nodes" in page.text


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


def test_a_split_shows_its_path(browse: Callable[..., Page]) -> None:
    page = browse(page_of(cut(MODEL, "Neg")), "#split=0")

    (shown,) = [a for tag, a in page.elements if tag == "a" and a.get("aria-current") == "true"]
    lit = [a for tag, a in page.elements if tag == "path" and "lit" in (a.get("class") or "")]
    assert page.with_class("vertex", "hit") == [1, 2, 3]
    assert shown["href"] == "#split=0"
    assert len(lit) == 2


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


def test_names_do_no_harm_in_a_browser(browse: Callable[..., Page]) -> None:
    text = page_of(cut(chain(*(("Neg" if i % 2 else "Relu", name) for i, name in enumerate(HOSTILE))), "Neg"))
    (last,) = [a["href"] for tag, a in Page(text).elements if a.get("href", "").startswith("#split=1")]

    page = browse(text, last)

    assert len(page.with_class("vertex", "hit")) == 3


@pytest.mark.parametrize("nodes", [pytest.param(2000, id="by-node"), pytest.param(2100, id="by-segment")])
def test_a_large_page_becomes_ready(browse: Callable[..., Page], nodes: int) -> None:
    page = browse(page_of(cut(long_chain(nodes), "Neg")), "#find=node_77")

    assert page.root("matches") == str(sum("node_77" in f"node_{i} node_{i - 1}" for i in range(nodes)))


def test_buttons_step_through_matches_which_the_overview_shows(browse: Callable[..., Page]) -> None:
    act = """
        const root = document.documentElement, map = document.getElementById("overview");
        const accent = () => {
            const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
            let pixels = 0;
            for (let i = 0; i < data.length; i += 4) pixels += String(data.slice(i, i + 3)) === "194,65,12";
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
        }).map((vertex) => vertex.querySelector(".title").textContent).join();
        const [frame, map] = ["frame", "map"].map((id) => document.getElementById(id).getBoundingClientRect());
        document.documentElement.dataset.framed = frame.left < map.right && frame.width <= map.width * 1.5;"""

    page = browse(page_of(cut(model, "Neg")), act=act, width=900)

    assert {"input", "Neg", "Relu"} <= set((page.root("seen") or "").split(","))
    assert page.root("framed") == "true"
    assert "50 unread inputs" in page.text


@pytest.mark.parametrize("width", [1440, 1200, 800, 500])
def test_no_table_is_cut_at_any_width(browse: Callable[..., Page], width: int) -> None:
    act = """
        document.documentElement.dataset.cut = [...document.querySelectorAll("body, header, aside, .table")]
            .filter((part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.tagName).join();"""
    names = [("Neg" if i % 2 else "Relu", f"/model/encoder/layer.{i}/attention/self/MatMul_{i}") for i in range(40)]

    page = browse(page_of(cut(chain(*names), "Neg")), act=act, width=width)

    assert page.root("cut") == ""


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


def test_a_model_without_nodes_has_a_working_page(browse: Callable[..., Page]) -> None:
    page = browse(page_of(cut('<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] x) { }')))

    assert "no nodes after clean-up" in page.text
