"""Models that plain ONNX Runtime loads and runs are loaded and run here, with the same answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest

from arrays import floats
from comparison import AssertSame, RunPlainly
from odd_models import EDITS, odd_model
from stand_in_workers import InProcessWorker
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineError
from trtnode.partitioner.errors import PartitionError
from workshop import Workshop

FEEDS = {"x": floats(2, 4), "unread": floats(1)}


def runs(run: Callable[[], object]) -> bool:
    """Return whether something runs; anything that stops it here must be a sentence."""
    try:
        run()
    except (EngineError, PartitionError):
        return False
    return True


def plainly(plain: RunPlainly, path: Any) -> dict[str, Any] | None:
    """Return the answers of plain ONNX Runtime; None where it refuses the model."""
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception:  # the binding has a class of its own for each status code
        return None
    known = {v.name for v in (*session.get_inputs(), *session.get_overridable_initializers())}
    return plain(path, {name: array for name, array in FEEDS.items() if name in known})


@pytest.mark.parametrize("name", EDITS)
def test_what_plain_onnxruntime_runs_gives_the_same_answers_as_it_is_and_compiled(
    name: str, shared_workshop: Workshop, plain: RunPlainly, same: AssertSame
) -> None:
    path = shared_workshop.folder / f"{name}.onnx"
    path.write_bytes(odd_model(name).SerializeToString())

    expected = plainly(plain, path)

    if expected is None:
        runs(lambda: open_model(path))
        runs(lambda: shared_workshop.compile(path, engine="native"))
        return
    compiled = shared_workshop.compile_file(path)
    answer = open_model(compiled)
    feeds = {spec.name: FEEDS[spec.name] for spec in answer.inputs if spec.name in FEEDS}
    same(open_model(path).run(feeds), expected)
    same(answer.run(feeds), expected)
    same(plain(compiled, feeds), expected)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("constants_with_the_same_output", ["Constants declare the same output; the last one holds ('two')"]),
        ("a_constant_named_like_an_input", ["Constants declare the name of an initializer or input", "('x')"]),
        ("initializers_with_the_same_name", ["Initializers have the same name or none; the last one holds ('b')"]),
        ("an_attribute_of_a_function_outside_of_one", ["Attributes refer to a function but are in none", "act"]),
        ("elements_of_another_type", ["Tensors have elements of another type, which are ignored ('b')"]),
        ("names_that_are_no_utf_8", ["Names are not written in UTF-8", "add"]),
        ("missing_data_that_nothing_reads", ["'unread'", "But nothing reads it, so it is left out"]),
        ("an_output_of_another_shape", ["Shapes that the model declares are wrong", "node name: mul"]),
        ("value_info_of_another_shape", ["Shapes that the model declares are wrong", "node name: mm"]),
    ],
)
def test_a_warning_names_what_is_wrong(
    name: str, parts: list[str], shared_workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    path = shared_workshop.folder / f"{name}.onnx"
    path.write_bytes(odd_model(name).SerializeToString())

    shared_workshop.compile(path, engine="native")

    assert any(all(part in message for part in parts) for message in caplog.messages)


def test_a_model_that_can_t_be_simplified_is_compiled_as_it_is(
    workshop: Workshop,
    in_process: InProcessWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    plain: RunPlainly,
    same: AssertSame,
) -> None:
    def fail(_: object) -> None:
        raise KeyError("no such value")

    monkeypatch.setattr("trtnode.partitioner.passes.clean_up.PASSES", (fail,))
    path = workshop.write(odd_model("plain"))

    compiled = workshop.compile_file(path, worker=in_process)

    assert "it can't be simplified ('no such value'), so its nodes stay as they are" in caplog.text
    same(open_model(compiled).run({"x": FEEDS["x"]}), plain(path, {"x": FEEDS["x"]}))
