"""Partitions to explain, and their pages as a browser reads them."""

from __future__ import annotations

import base64
import html.parser
import json
import pathlib
import zlib
from typing import Any

import onnx
from onnx import TensorProto, helper

from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.partition import Partition, partition_graph
from trtnode.partitioner.model.loading import view_model
from trtnode.partitioner.passes.clean_up import clean_up
from trtnode.serving.pages.explain_page import render_page

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
        """The facts that the page's script knows."""
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
