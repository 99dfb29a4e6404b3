from __future__ import annotations

import grpc

from trtnode.serving.service.call import Call, FutureWriter


def call_of(*client) -> tuple[Call, FutureWriter]:
    writer = FutureWriter(lambda code, details: (code, details))
    return Call(writer, *client), writer


def test_everyone_who_asked_hears_of_a_client_that_leaves() -> None:
    (call, _), heard = call_of("peer"), []

    assert call.add_callback(lambda: heard.append("first"))
    assert call.add_callback(lambda: heard.append("second"))
    call.leave()

    assert heard == ["first", "second"]


def test_who_asks_after_the_client_has_left_gets_no_callback() -> None:
    call, _ = call_of("peer")
    call.leave()

    assert not call.add_callback(lambda: None)


def test_a_call_says_who_asked_and_how_it_ended() -> None:
    call, writer = call_of("ipv4:127.0.0.1:9", [("traceparent", "00-1")])
    call.fail(grpc.StatusCode.NOT_FOUND, "no model")

    assert call.peer() == "ipv4:127.0.0.1:9"
    assert call.header("traceparent") == "00-1"
    assert call.code is grpc.StatusCode.NOT_FOUND
    assert writer.answer.result() == (grpc.StatusCode.NOT_FOUND, "no model")


def test_only_the_first_answer_of_a_call_is_written() -> None:
    call, writer = call_of("peer")

    call.reply("first")
    call.fail(grpc.StatusCode.INTERNAL, "second")

    assert writer.answer.result() == "first"
    assert call.writer is None


class Refusing(FutureWriter):
    """Can't write a response that is no text."""

    def reply(self, call: Call, response: object) -> None:
        super().reply(call, str.strip(response))


def test_a_response_that_can_not_be_written_fails_its_call() -> None:
    writer = Refusing(lambda code, _details: code.name)
    call = Call(writer)

    call.answer_rpc("ServerLive", None, lambda: b"no text")

    assert writer.answer.result() == "INTERNAL"
    assert call.code is grpc.StatusCode.INTERNAL
