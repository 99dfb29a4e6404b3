"""Compiled files that somebody has edited by hand: each field holds something else, and one sentence says so."""

from __future__ import annotations

import copy
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from comparison import AssertSame, RunPlainly
from edited_models import attribute
from trtnode.engines.artifact.checksum import stamp_checksum
from trtnode.engines.artifact.compiled_model import REPORT, embedded_report
from trtnode.engines.artifact.envelope import ASKED, EMPTY, INDICES, PRECISIONS, SATURATED, Envelope, index_sizes
from trtnode.engines.backends.names import ASKED_PRECISIONS, PRECISION_NAMES
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineRejectedError
from trtnode.engines.precision.rules import join_precisions
from trtnode.engines.tuning.decision import is_provisional
from trtnode.partitioner.compiled.references import LEAST_BYTES
from trtnode.serving.pages.explain_tables import measured_times
from workshop import Workshop

WRONG = (None, True, -1, 3, 2**70, 1.5, "x", "", [], [None], [[]], ["x"], [[0, "x"]], {}, {"x": 1}, [{"input": 5}])
MISSING = object()
FEEDS = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
TUNING = {
    "candidates": [{"name": "all native", "p50_ms": 1.5, "segments": ["segment_0"]}],
    "chosen": "all native",
    "confidence": "likely",
}
"""Figures as a measurement leaves them."""


@pytest.fixture(scope="module")
def compiled(shared_workshop: Workshop) -> onnx.ModelProto:
    """A model of two engines and a native node, one weight of which an engine shares with the file."""
    weights = ", ".join(f"{number / 1024}" for number in range(1024))
    source = shared_workshop.write(
        f"g (float[N,4] x) => (float[N,256] y) <float[4,256] w = {{{weights}}}> "
        "{ e = Exp(x) r = Relu(e) y = MatMul(r, w) }"
    )
    proto = shared_workshop.compile(source, native_ops=("Relu",)).model
    report = {**json.loads(properties(proto)[REPORT].value), "tuning": TUNING, "sizes": {"x": ["N", 4]}}
    properties(proto)[REPORT].value = json.dumps(report)
    return proto


def properties(proto: onnx.ModelProto) -> dict[str, onnx.StringStringEntryProto]:
    return {entry.key: entry for entry in proto.metadata_props}


def engines(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.op_type == "TrtNode"]


@pytest.fixture
def fields(compiled: onnx.ModelProto) -> dict[str, Any]:
    """The JSON of an envelope with every option that holds JSON."""
    found = json.loads(attribute(engines(compiled)[0], "envelope").s)
    found["options"] |= {
        EMPTY: "[[[0, 0]]]",
        INDICES: '[{"input": 0, "sizes": [4, [0, 1]], "negative": true, "length": false}]',
        SATURATED: "[0]",
    }
    found["node_precisions"] = {"Exp:e": "fp32"}
    found["profiles"] = [{"x": {"min": [1, 4], "opt": [1, 4], "max": [2, 4]}}]
    return found


def damaged(value: Any, forms: tuple[Any, ...] = (*WRONG, MISSING)) -> Iterator[Any]:
    """Yield the value with one part of it replaced, for each part and form."""
    yield from (form for form in forms if form is not MISSING)
    parts = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, part in parts:
        for one in (*damaged(part, forms), *([MISSING] if MISSING in forms else [])):
            changed = copy.copy(value)
            if one is MISSING:
                del changed[key]
            else:
                changed[key] = one
            yield changed


def read_all(envelope: Envelope) -> None:
    """Use each field as the program does."""
    assert isinstance(envelope.empty_places, frozenset)
    assert isinstance(index_sizes([envelope]), dict)
    assert join_precisions([envelope.precision_effective])
    assert Envelope.from_json(envelope.to_json(), "s") == envelope
    envelope.signed_bytes()
    with pytest.raises(EngineRejectedError):
        envelope.check_machine("s", version="none", device=envelope.device)


def test_precisions_of_envelopes_are_those_that_may_be_asked_for() -> None:
    assert (frozenset(PRECISION_NAMES), frozenset(ASKED_PRECISIONS)) == (PRECISIONS, ASKED)


def test_each_damaged_field_of_an_envelope_is_refused_in_one_sentence_or_harmless(fields: dict[str, Any]) -> None:
    held = {name: json.loads(fields["options"][name]) for name in (EMPTY, INDICES, SATURATED)}
    edited = [*damaged(fields)]
    for name, value in held.items():
        edited += [{**fields, "options": {**fields["options"], name: json.dumps(one)}} for one in damaged(value)]
        edited.append({**fields, "options": {**fields["options"], name: "[" * 100_000}})
    refusals = [text for one in edited if (text := refusal_of(one))]

    assert len(refusals) > len(edited) // 2
    for text in refusals:
        assert text.startswith("The engine of segment_0 can't be used: its envelope ")
        assert len(text.splitlines()) == 1


def refusal_of(fields: object) -> str:
    """Return the sentence about an envelope; empty if it can be used."""
    try:
        envelope = Envelope.from_json(json.dumps(fields), "segment_0")
    except EngineRejectedError as error:
        return str(error)
    read_all(envelope)
    return ""


def test_a_precision_that_is_none_is_named(fields: dict[str, Any]) -> None:
    text = json.dumps({**fields, "precision_effective": "x"})

    with pytest.raises(EngineRejectedError, match=r"it\.precision_effective should be one of bf16, fp16, "):
        Envelope.from_json(text, "segment_0")


def test_each_damaged_field_of_a_report_is_left_out_or_harmless(compiled: onnx.ModelProto) -> None:
    report = json.loads(properties(compiled)[REPORT].value)
    model = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    problems = []

    for one in damaged(report):
        model.metadata_props[REPORT] = json.dumps(one)
        try:
            found = embedded_report(model)
        except ValueError as error:
            problems.append(str(error))
        else:
            read_parts(found)

    assert len(problems) > 100
    assert all(len(text.splitlines()) == 1 for text in problems)


def read_parts(report: dict[str, Any] | None) -> None:
    """Use each part of a report as the server does."""
    assert report is not None
    assert isinstance(report["nodes"] - 1, int)
    assert isinstance(is_provisional(report.get("tuning")), bool)
    assert all(f"{time:.3f}" for time in measured_times(report.get("tuning", TUNING)).values())
    memory = report.get("memory", {"weight_bytes": 1, "engine_bytes": None})
    assert isinstance(memory["weight_bytes"] + (memory["engine_bytes"] or 0), int)


Damage = Callable[[onnx.ModelProto], None]


def with_field(name: str, value: object) -> Damage:
    def damage(proto: onnx.ModelProto) -> None:
        held = attribute(engines(proto)[0], "envelope")
        held.s = json.dumps({**json.loads(held.s), name: value}).encode()

    return damage


def with_property(name: str, text: str) -> Damage:
    def damage(proto: onnx.ModelProto) -> None:
        proto.metadata_props.add(key=name)
        properties(proto)[name].value = text

    return damage


def with_references(data: bytes) -> Damage:
    def damage(proto: onnx.ModelProto) -> None:
        held = attribute(engines(proto)[-1], "engine_references").t
        held.raw_data, held.dims[:] = data, [len(data)]

    return damage


def row(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


EDITED = {
    "precision": with_field("precision_effective", "x"),
    "report-of-text": with_property(REPORT, '"x"'),
    "report-of-lists": with_property(REPORT, "[" * 100_000),
    "report-without-nodes": with_property(REPORT, '{"model": "m", "engine": "x", "native": []}'),
    "reference-nodes-of-lists": with_property("trtnode.reference", "[" * 100_000),
    "shapes-of-lists": with_property("trtnode.shapes", "[" * 100_000),
    "shapes-of-text": with_property("trtnode.shapes", '[{"x": "y"}]'),
    "references-cut": with_references(b"\1" * 7),
    "references-negative": with_references(row(-1, LEAST_BYTES, 1, 0, 0)),
    "references-of-no-weight": with_references(row(0, LEAST_BYTES, 7, 0, 0)),
    "references-huge": with_references(row(0, 2**62, 1, 0, 0)),
    "references-beyond": with_references(row(2**62, LEAST_BYTES, 1, 0, 0)),
    "references-of-an-unknown-form": with_references(row(0, LEAST_BYTES, 1, 0, 5)),
}


@pytest.mark.parametrize("damage", [pytest.param(damage, id=name) for name, damage in EDITED.items()])
def test_an_edited_file_is_answered_natively_with_one_sentence(
    damage: Damage,
    compiled: onnx.ModelProto,
    tmp_path: pathlib.Path,
    plain: RunPlainly,
    same: AssertSame,
    caplog: pytest.LogCaptureFixture,
) -> None:
    proto = onnx.ModelProto.FromString(compiled.SerializeToString())
    damage(proto)
    path = tmp_path / "edited.onnx"
    stamp_checksum(proto, path)
    path.write_bytes(proto.SerializeToString())

    executable = open_model(path)

    assert all(len(record.getMessage().splitlines()) == 1 for record in caplog.records)
    assert all(record.exc_info is None for record in caplog.records)
    same(executable.run(FEEDS), plain(path, FEEDS))
