"""Tokens of streams, which are checked at each request."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from tests.serving.conftest import Running
from tests.serving.security.conftest import ALL, ONE, refusals


def test_a_streamed_request_for_a_model_that_the_token_does_not_cover_fails_alone(
    running: Running, stream: Callable[..., grpc.Call]
) -> None:
    answers = list(stream(ONE, ["fake", "other", "", "fake"]))

    by_id = {one.infer_response.id: one.error_message for one in answers}
    assert len(answers) == 4
    assert by_id["for fake"] == ""
    assert "the token 'one' doesn't cover model 'other'" in by_id["for other"]
    assert "the token 'one' doesn't cover all models at once" in by_id["for "]
    assert refusals(running)["forbidden"] == 2


def test_a_stream_that_asks_for_statuses_ends_with_that_of_a_model_that_is_not_covered(
    stream: Callable[..., grpc.Call],
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stream(ONE, ["other"], triton_grpc_error="true"))

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_bytes_that_are_no_message_end_the_stream_of_any_token(stream: Callable[..., grpc.Call]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(stream(ONE, [b"\xff\xff"]))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_stream_ends_when_its_token_is_withdrawn(stream: Callable[..., grpc.Call], file: pathlib.Path) -> None:
    withdrawn = threading.Event()

    def names() -> Iterator[str]:
        yield "fake"
        withdrawn.wait(120)
        yield "fake"

    answers = stream(ALL, names())
    assert not next(answers).error_message
    file.write_text("")
    withdrawn.set()
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
