"""The verdicts of the engine library itself: asked for once, for each kind of node, and kept."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import pytest

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.backends import library_jobs
from trtnode.engines.build.library_verdicts import _known, ask_library
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.build.whole_model import Reading
from trtnode.engines.errors import WorkerError
from trtnode.engines.openvino.backend import OpenVinoBackend
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict, label_nodes
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import view_model
from trtnode.partitioner.passes.clean_up import clean_up

MODEL = """<ir_version: 10, opset_import: ["": 17]> g (float[1, 4, 8, 8] x) => (float[A, B] y)
<float[4, 4, 3, 3] w, int64[2] shape = {1, -1}, int64[4] perm = {0, 2, 3, 1}> {
    a = Conv(x, w)
    b = Relu(a)
    c = Conv(b, w)
    d = Relu(c)
    [odd] e = Softsign(d)
    y = Reshape(e, shape)
}"""


class AskedWorker(SubprocessWorker):
    """Answers questions itself, and keeps them."""

    def __init__(self, answer: Callable[[onnx.ModelProto], Verdict | None]) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self._answer = answer

    def call(self, function: Callable[..., Any], timeout_s: float | None, /, *args, **kwargs):
        assert function is library_jobs.check_support
        model = onnx.load(args[1])
        self.asked.append([node.op_type for node in model.graph.node])
        return self._answer(model) or SUPPORTED


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    _known.clear()


@pytest.fixture
def graph() -> Graph:
    text = MODEL.replace("<float[4, 4, 3, 3] w,", "<float[4, 4, 3, 3] w = {" + ", ".join(["1"] * 144) + "},")
    return clean_up(view_model(onnx.parser.parse_model(text), pathlib.Path("model.onnx")))


def has(op_type: str, code: ReasonCode = ReasonCode.UNSUPPORTED_OP) -> Callable[[onnx.ModelProto], Verdict | None]:
    refusal = Verdict(code, f"No {op_type} here.")
    return lambda model: refusal if op_type in [n.op_type for n in model.graph.node] else None


def refused(graph: Graph, worker: SubprocessWorker, cache: EngineCache | None = None) -> dict[str, str]:
    options = PartitionOptions()
    rule = ask_library(OpenVinoBackend(), Reading(graph=graph), options, cache, worker)
    return {n: v.detail for n, v in label_nodes(graph, rule, options).items() if not v.supported}


def test_each_kind_of_node_is_asked_about_once(graph: Graph) -> None:
    worker = AskedWorker(lambda _: None)

    assert refused(graph, worker) == {}
    assert refused(graph, worker) == {}
    assert worker.asked == [["Conv", "Relu", "Softsign", "Reshape"]]


def test_what_the_library_refuses_is_found_and_runs_natively_in_its_words(graph: Graph) -> None:
    assert refused(graph, AskedWorker(has("Softsign"))) == {"odd": "No Softsign here."}


def test_the_reason_code_is_the_librarys_too(graph: Graph, tmp_path: pathlib.Path) -> None:
    cache, options = EngineCache(tmp_path, 10**6), PartitionOptions()
    asked = AskedWorker(has("Softsign", ReasonCode.UNSUPPORTED_RANK))

    for worker in (asked, AskedWorker(has("nothing"))):
        rule = ask_library(OpenVinoBackend(), Reading(graph=graph), options, cache, worker)
        _known.clear()

        assert label_nodes(graph, rule, options)["odd"].code == ReasonCode.UNSUPPORTED_RANK


def test_answers_are_kept_for_the_next_process(graph: Graph, tmp_path: pathlib.Path) -> None:
    cache = EngineCache(tmp_path, 10**6)
    refused(graph, AskedWorker(has("Softsign")), cache)
    _known.clear()
    later = AskedWorker(has("nothing"))

    assert refused(graph, later, cache) == {"odd": "No Softsign here."}
    assert later.asked == []


def test_a_question_that_crashes_the_library_costs_one_node_and_is_asked_again(
    graph: Graph, tmp_path: pathlib.Path
) -> None:
    def crash(model: onnx.ModelProto) -> None:
        if "Softsign" in [n.op_type for n in model.graph.node]:
            raise WorkerError("The process that ran check_support crashed (exit code -6).")

    cache = EngineCache(tmp_path, 10**6)

    found = refused(graph, AskedWorker(crash), cache)
    _known.clear()

    assert found == {
        "odd": "The library could not be asked about it: The process that ran check_support crashed (exit code -6)."
    }
    assert refused(graph, AskedWorker(has("nothing")), cache) == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"verdicts": 3}', '{"verdicts": [1]}'])
def test_a_damaged_record_counts_as_missing(text: str, graph: Graph, tmp_path: pathlib.Path) -> None:
    cache = EngineCache(tmp_path, 10**6)
    refused(graph, AskedWorker(has("nothing")), cache)
    _known.clear()
    for record in tmp_path.glob("*.json"):
        record.write_text(text, encoding="utf-8")

    assert refused(graph, AskedWorker(has("Softsign")), cache) == {"odd": "No Softsign here."}


def test_openvino_itself_takes_these_nodes_and_refuses_an_operator_that_it_lacks(
    graph: Graph, tmp_path: pathlib.Path
) -> None:
    backend = OpenVinoBackend()
    fine, odd = tmp_path / "fine.onnx", tmp_path / "odd.onnx"
    _save(fine, ["y = Relu(x)"])
    _save(odd, ["y = Det(x)"])

    with SubprocessWorker() as worker:
        assert refused(graph, worker) == {}
        assert worker.call(library_jobs.check_support, 60.0, backend.name, fine) == SUPPORTED
        assert "Det" in worker.call(library_jobs.check_support, 60.0, backend.name, odd).detail


def test_what_the_user_excludes_is_not_asked_about(graph: Graph) -> None:
    worker = AskedWorker(lambda _: None)

    ask_library(OpenVinoBackend(), Reading(graph=graph), PartitionOptions(native_ops=("Conv", "Reshape")), None, worker)

    assert worker.asked == [["Relu", "Softsign"]]


def _save(path: pathlib.Path, lines: Sequence[str]) -> None:
    body = "\n".join(lines)
    shape = "float[3, 3]" if "Det" not in body else "float"
    text = f'<ir_version: 10, opset_import: ["": 17]> g (float[3, 3] x) => ({shape} y) {{ {body} }}'
    onnx.save(onnx.parser.parse_model(text), path)
