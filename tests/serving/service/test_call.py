from __future__ import annotations

import grpc

from trtnode.serving.service.call import Call


class Quiet(Call):
    """A call whose client hears nothing."""

    def reply(self, _response: bytes) -> None: ...

    def fail(self, _code: grpc.StatusCode, _details: str) -> None: ...


def test_a_client_that_leaves_is_told_to_everyone_who_asked() -> None:
    call, told = Quiet("peer"), []

    assert call.add_callback(lambda: told.append("first"))
    assert call.add_callback(lambda: told.append("second"))
    call.leave()

    assert told == ["first", "second"]


def test_who_asks_after_the_client_has_left_is_told_so() -> None:
    call = Quiet("peer")
    call.leave()

    assert not call.add_callback(lambda: None)


def test_a_call_says_who_asked_and_how_it_ended() -> None:
    call = Quiet("ipv4:127.0.0.1:9", [("traceparent", "00-1")])
    call.set_code(grpc.StatusCode.NOT_FOUND)

    assert call.peer() == "ipv4:127.0.0.1:9"
    assert list(call.invocation_metadata()) == [("traceparent", "00-1")]
    assert call.code() is grpc.StatusCode.NOT_FOUND
