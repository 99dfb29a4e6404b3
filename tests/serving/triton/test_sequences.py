"""Accumulating models with the controls and states of a config.pbtxt, asked by each of Triton's clients."""

from __future__ import annotations

import asyncio
import pathlib
import queue
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio

from model_texts import parse
from tests.serving.conftest import READY_S, Running, given, refusal
from tests.serving.triton.test_model_control import config_of
from trtnode.engines.artifact.files import write_model
from trtnode.serving.errors import ConfigError
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server

ACCUMULATOR = """accumulator
    (int32[n,1] x, int32[n,1] START, float[n,1] END, bool[n,1] READY, uint64[n,1] CORRID, int32[n,1] before)
    => (int32[n,1] y, int32[n,1] after) <int32 one = {1}, int32 none = {0}> {
    is_later = Sub(one, START)
    kept = Mul(before, is_later)
    after = Add(kept, x)
    is_end = Cast<to = 6>(END)
    name = Cast<to = 6>(CORRID)
    at_end = Mul(is_end, name)
    all = Add(after, at_end)
    y = Where(READY, all, none)
}"""
"""Adds up what it gets, and at the end the number of the sequence, as Triton's own example does."""
CONTROLS = """
    control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
    control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } }
    control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }
    control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
"""
STATE = 'state { input_name: "before" output_name: "after" data_type: TYPE_INT32 dims: 1 %s }'
CONFIGS = {
    "direct": f"max_batch_size: 4 sequence_batching {{ direct {{ }} {CONTROLS} {STATE % ''} }}",
    "oldest": f"""max_batch_size: 4
        input {{ name: "x" data_type: TYPE_INT32 dims: 1 }}
        output {{ name: "y" data_type: TYPE_INT32 dims: 1 }}
        output {{ name: "after" data_type: TYPE_INT32 dims: 1 }}
        sequence_batching {{ max_sequence_idle_microseconds: 5000000 oldest {{ max_candidate_sequences: 3 }} {CONTROLS}
        {STATE % "initial_state { data_type: TYPE_INT32 dims: 1 zero_data: true }"} }}""",
    "filed": f"""sequence_batching {{ control_input {{ name: "NAME"
        control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING }} }}
        {STATE % 'initial_state { data_type: TYPE_INT32 dims: 1 data_file: "first" }'} }}""",
}
NAMED = """named (int32[1] x, string[1] NAME, int32[1] before) => (int32[1] after, int32[1] y, string[1] told) {
    after = Add(before, x)
    y = Identity(after)
    told = Identity(NAME)
}"""
Values = list[int]
Ask = Callable[[Running, str, Values, int], Values]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, warm_cache: pathlib.Path) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("sequences")
    for name, config in CONFIGS.items():
        (folder / name / "1").mkdir(parents=True)
        write_model(parse(NAMED if name == "filed" else ACCUMULATOR), folder / name / "1" / "model.onnx")
        (folder / name / "config.pbtxt").write_text(config)
    (folder / "filed" / "initial_state").mkdir()
    np.array([100], np.int32).tofile(folder / "filed" / "initial_state" / "first")
    built = Server(config := config_of(folder), engine_loader(config))
    built.start()
    running = Running(built, triton.InferenceServerClient(f"127.0.0.1:{built.port}"))
    assert built.wait_ready(READY_S), built.failure
    yield running
    running.client.close()
    built.stop(5)


def marks(values: Values, sequence: int) -> Iterator[tuple[np.ndarray, dict[str, object]]]:
    """Yield the input and the parameters of each request of a sequence."""
    for index, value in enumerate(values):
        mark = {"sequence_id": sequence, "sequence_start": index == 0, "sequence_end": index == len(values) - 1}
        yield np.array([[value]], np.int32), mark


def over_grpc(served: Running, model: str, values: Values, sequence: int) -> Values:
    answers = (served.client.infer(model, [given("x", x)], **mark) for x, mark in marks(values, sequence))
    return [int(answer.as_numpy("y")[0, 0]) for answer in answers]


def over_a_stream(served: Running, model: str, values: Values, sequence: int) -> Values:
    answers: queue.SimpleQueue = queue.SimpleQueue()
    with triton.InferenceServerClient(served.address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for x, mark in marks(values, sequence):
            client.async_stream_infer(model, [given("x", x)], **mark)
        found = [answers.get(timeout=READY_S) for _ in values]
    assert [error for _, error in found] == [None] * len(values)
    return [int(result.as_numpy("y")[0, 0]) for result, _ in found]


def over_grpc_aio(served: Running, model: str, values: Values, sequence: int) -> Values:
    async def ask() -> Values:
        async with triton_aio.InferenceServerClient(served.address) as client:
            answers = [await client.infer(model, [given("x", x)], **mark) for x, mark in marks(values, sequence)]
        return [int(answer.as_numpy("y")[0, 0]) for answer in answers]

    return asyncio.run(ask())


def in_http(x: np.ndarray) -> triton_http.InferInput:
    one = triton_http.InferInput("x", list(x.shape), "INT32")
    one.set_data_from_numpy(x)
    return one


def over_http(served: Running, model: str, values: Values, sequence: int) -> Values:
    with triton_http.InferenceServerClient(served.http.removeprefix("http://")) as client:
        answers = [client.infer(model, [in_http(x)], **mark) for x, mark in marks(values, sequence)]
    return [int(answer.as_numpy("y")[0, 0]) for answer in answers]


def over_http_aio(served: Running, model: str, values: Values, sequence: int) -> Values:
    async def ask() -> Values:
        async with triton_http_aio.InferenceServerClient(served.http.removeprefix("http://")) as client:
            answers = [await client.infer(model, [in_http(x)], **mark) for x, mark in marks(values, sequence)]
        return [int(answer.as_numpy("y")[0, 0]) for answer in answers]

    return asyncio.run(ask())


@pytest.mark.parametrize("model", ["direct", "oldest"])
@pytest.mark.parametrize("ask", [over_grpc, over_a_stream, over_grpc_aio, over_http, over_http_aio])
def test_a_model_gets_start_end_ready_and_the_number_of_its_sequence(ask: Ask, model: str, served: Running) -> None:
    assert ask(served, model, [1, 2, 3], 1000) == [1, 3, 1006]
    assert ask(served, model, [5], 7) == [12]


def test_clients_see_neither_controls_nor_state_but_outputs_that_the_configuration_lists(served: Running) -> None:
    tensors = {
        model: [one.name for side in (metadata.inputs, metadata.outputs) for one in side]
        for model in ("direct", "oldest")
        for metadata in [served.client.get_model_metadata(model)]
    }
    batching = served.client.get_model_config("oldest").config.sequence_batching

    assert tensors == {"direct": ["x", "y"], "oldest": ["x", "y", "after"]}
    assert (batching.oldest.max_candidate_sequences, len(batching.control_input)) == (3, 4)


def test_a_first_value_comes_from_its_file_and_a_sequence_may_be_named_by_text(served: Running) -> None:
    def add(value: int, **mark: bool) -> tuple[int, bytes]:
        x = [given("x", np.array([value], np.int32))]
        answer = served.client.infer("filed", x, sequence_id="blue", **mark)
        return int(answer.as_numpy("y")[0]), answer.as_numpy("told")[0]

    assert add(1, sequence_start=True) == (101, b"blue")
    assert add(2, sequence_end=True) == (103, b"blue")


def test_a_name_that_the_model_does_not_take_is_an_error(served: Running) -> None:
    code, text = refusal(
        lambda: served.client.infer(
            "direct", [given("x", np.ones((1, 1), np.int32))], sequence_id="blue", sequence_start=True
        )
    )

    assert (code, "sequence_id should be UINT64, as the input 'CORRID' takes it" in text) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    ("batching", "sentence"),
    [
        ('control_input { name: "START" control { kind: CONTROL_SEQUENCE_START } }', "should have two values"),
        (
            'control_input { name: "START" control { int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ] } }',
            "should have two values",
        ),
        (
            'control_input { name: "N" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } }',
            "has data_type TYPE_FP32; write one of TYPE_UINT64",
        ),
        (STATE % 'initial_state { data_file: "../../secret" }', "is outside of the model's folder; put it into its"),
        (STATE % 'initial_state { data_file: "gone" }', "there is no file"),
        ("iterative_sequence: true", "iterative_sequence: each request has one answer here"),
    ],
)
def test_what_cannot_be_had_is_refused_with_its_line(batching: str, sentence: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    write_model(parse(ACCUMULATOR), tmp_path / "m" / "1" / "model.onnx")
    (tmp_path / "m" / "config.pbtxt").write_text(f"\nsequence_batching {{ {batching} }}")

    with pytest.raises(ConfigError) as refused:
        config_of(tmp_path)

    assert sentence in str(refused.value)
