"""Sequences as clients of Triton have them: over gRPC, streams and REST."""

from __future__ import annotations

import gc
import pathlib
import queue
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
import tritonclient.http as rest

from model_texts import parse
from stateful_models import MASKED
from tests.serving.conftest import Running, Starter, given, refusal
from tests.serving.sequences.conftest import add


@pytest.mark.parametrize("identity", [7, 2**63 - 1, "a text"])
def test_each_request_begins_with_what_the_one_before_has_left(counting: Running, identity: int | str) -> None:
    sums = [
        add(counting.client, value, identity, sequence_start=not value, sequence_end=value == 3) for value in range(4)
    ]

    assert sums == [0, 1, 3, 6]


def test_sequences_side_by_side_have_states_of_their_own(counting: Running) -> None:
    starts = [add(counting.client, number, number, sequence_start=True) for number in (1, 2, 3)]
    following = [add(counting.client, 10, number, sequence_end=True) for number in (3, 1, 2)]

    assert (starts, following) == ([1, 2, 3], [13, 11, 12])


def test_a_second_start_begins_anew(counting: Running) -> None:
    add(counting.client, 5, 21, sequence_start=True)

    assert add(counting.client, 1, 21, sequence_start=True) == 1
    assert add(counting.client, 1, 21, sequence_end=True) == 2


@pytest.mark.parametrize("options", [{}, {"sequence_id": 0}, {"sequence_id": ""}])
def test_a_request_without_a_sequence_is_told_what_to_send(counting: Running, options: dict[str, object]) -> None:
    inputs = [given("x", np.zeros((1, 1), np.float32))]

    status, text = refusal(lambda: counting.client.infer("counter", inputs, **options))

    assert status == "INVALID_ARGUMENT"
    assert text == (
        "model 'counter' keeps state: send the parameter sequence_id, a number above 0 or a text, with each request, "
        "and sequence_start with the first one"
    )


def test_a_first_request_without_start_is_refused(counting: Running) -> None:
    status, text = refusal(lambda: add(counting.client, 1, 77))

    assert status == "INVALID_ARGUMENT"
    assert text == ("sequence 77 of model 'counter' is not begun; begin it with a request that has sequence_start set")


def test_a_sequence_is_over_after_its_end(counting: Running) -> None:
    add(counting.client, 1, 31, sequence_start=True, sequence_end=True)

    assert refusal(lambda: add(counting.client, 1, 31))[0] == "INVALID_ARGUMENT"


def test_requests_of_one_stream_run_in_order(counting: Running) -> None:
    answers: queue.Queue = queue.Queue()
    with triton.InferenceServerClient(counting.address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for value in range(200):
            inputs = [given("x", np.array([[value]], np.float32))]
            options = {"sequence_start": not value, "sequence_end": value == 199}
            client.async_stream_infer("counter", inputs, request_id=str(value), sequence_id=5, **options)
        taken = [answers.get(timeout=60) for _ in range(200)]

    assert [error for _, error in taken if error] == []
    sums = {int(one.get_response().id): float(one.as_numpy("sum")[0, 0]) for one, _ in taken}
    assert sums == {value: value * (value + 1) / 2 for value in range(200)}


def test_answered_requests_free_their_calls_at_once(counting: Running) -> None:
    def count(identity: int) -> None:
        for value in range(40):
            add(counting.client, 1, identity, sequence_start=not value, sequence_end=value == 39)

    gc.disable()  # calls that waited for it would reach the most that a connection may have
    try:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(count, range(100, 116)))
    finally:
        gc.enable()


@pytest.mark.parametrize("binary", [True, False])
def test_rest_has_sequences_too(counting: Running, binary: bool) -> None:
    sums = []
    with rest.InferenceServerClient(f"127.0.0.1:{counting.server.http_port}") as client:
        for value in range(3):
            one = rest.InferInput("x", [1, 1], "FP32")
            one.set_data_from_numpy(np.array([[value]], np.float32), binary_data=binary)
            options = {"sequence_start": not value, "sequence_end": value == 2}
            sums.append(float(client.infer("counter", [one], sequence_id=9, **options).as_numpy("sum")[0, 0]))

    assert sums == [0, 1, 3]


def test_clients_see_no_state(counting: Running) -> None:
    metadata = counting.client.get_model_metadata("counter")

    assert [one.name for one in metadata.inputs] == ["x"]
    assert [one.name for one in metadata.outputs] == ["sum"]


def test_a_client_sends_the_mask_of_its_own_tokens(start: Starter, tmp_path: pathlib.Path) -> None:
    onnx.save(parse(MASKED), tmp_path / "m.onnx")
    state = "state: [{input: past, output: present}], sequences: {append: [attention_mask]}"
    client = start(f"- {{name: m, path: {tmp_path}/m.onnx, engine: native, {state}}}\n").client

    def ask(x: list[float], mask: list[int], **options: object) -> float:
        inputs = [given("x", np.array([x], np.float32)), given("attention_mask", np.array([mask]))]
        return float(client.infer("m", inputs, sequence_id=1, **options).as_numpy("sum")[0, 0])

    assert ask([1, 2, 4], [0, 1, 1], sequence_start=True) == 6
    assert ask([8], [1]) == 14
    assert ask([16], [0]) == 14
    assert ask([32, 64], [1, 0], sequence_end=True) == 46


def test_a_request_that_fails_leaves_the_state_of_before(counting: Running) -> None:
    add(counting.client, 5, 41, sequence_start=True)
    inputs = [given("x", np.zeros((1, 2), np.float32))]

    assert refusal(lambda: counting.client.infer("counter", inputs, sequence_id=41))[0] == "INVALID_ARGUMENT"
    assert add(counting.client, 1, 41, sequence_end=True) == 6
