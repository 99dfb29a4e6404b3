"""Nodes that ONNX Runtime has no kernel for: by operator, by type, and behind functions and subgraphs."""

from __future__ import annotations

import pathlib

import pytest

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.onnxruntime.missing_kernels import nodes_without_kernel
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.clean_up import clean_up
from workshop import Workshop


def missing(path: pathlib.Path) -> list[str]:
    graph = clean_up(load_model(path))
    return [node.op_type for node in nodes_without_kernel(graph, graph.nodes)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(float[2] x) => (float[2] y) { z = Exp(x) y = Neg(z) }", [], id="kernels"),
        pytest.param("(float[2] x, uint64[2] n) => (float[2] y) { z = Exp(x) y = Pow(z, n) }", ["Pow"], id="types"),
        pytest.param("(float[2] x, int64[2] n) => (float[2] y) { y = Pow(x, n) }", [], id="other-types"),
        pytest.param("(bfloat16[2] x) => (bfloat16[2] y) { z = Neg(x) y = Neg(z) }", ["Neg"] * 2, id="each-of-a-kind"),
        pytest.param("(float[2] x) => (float[2] y) { z = Gelu(x) y = Celu(z) }", [], id="functions"),
        pytest.param(
            """(bool[] c, float[2] x, uint64[2] n) => (float[2] y) { y = If(c) <
                then_branch = t () => (a) { a = Pow(x, n) }, else_branch = e () => (b) { b = Neg(x) }> }""",
            ["If"],
            id="subgraph",
        ),
    ],
)
def test_they_are_found_by_kind(text: str, expected: list[str], workshop: Workshop) -> None:
    assert missing(workshop.write(f"g {text}")) == expected


def test_nodes_of_unknown_types_are_not_judged(workshop: Workshop) -> None:
    text = "g (float[2] x) => (float[2] y) { z = nobody.Knows(x) y = Neg(z) }"

    assert missing(workshop.write(text, domains=', "nobody": 1')) == ["Knows"]


def test_a_large_weight_is_left_out(workshop: Workshop) -> None:
    text = f"""g (float[1,2000] x) => (float[1,1] y, float[2] p) <float[2000,1] w = {{{", ".join(["0.5"] * 2000)}}},
        uint64[2] n = {{1, 2}}, float[2] b = {{3, 4}}> {{ y = MatMul(x, w) c = Abs(b) p = Pow(c, n) }}"""

    assert missing(workshop.write(text)) == ["Pow"]


def test_kinds_with_a_kernel_are_asked_about_once(
    workshop: Workshop, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = clean_up(
        load_model(workshop.write("g (float[2] x, uint64[2] n) => (float[2] y) { z = Exp(x) y = Pow(z, n) }"))
    )
    cache = EngineCache(tmp_path / "cache", 2**20)
    first = nodes_without_kernel(graph, graph.nodes, cache)

    asked: list[str] = []
    monkeypatch.setattr(
        "trtnode.engines.onnxruntime.missing_kernels.open_native", lambda _, name, **__: asked.append(name)
    )
    nodes_without_kernel(graph, graph.nodes, EngineCache(tmp_path / "cache", 2**20))

    assert [node.op_type for node in first] == ["Pow"]
    assert asked == ["Pow:y"]
