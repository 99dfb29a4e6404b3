from __future__ import annotations

import grpc

from trtnode.serving.service.request_context import RequestContext


def test_a_client_that_leaves_is_told_to_everyone_who_asked() -> None:
    context, told = RequestContext("peer"), []

    assert context.add_callback(lambda: told.append("first"))
    assert context.add_callback(lambda: told.append("second"))
    context.leave()

    assert told == ["first", "second"]


def test_who_asks_after_the_client_has_left_is_told_so() -> None:
    context = RequestContext("peer")
    context.leave()

    assert not context.add_callback(lambda: None)


def test_a_context_says_who_asked_and_how_it_ended() -> None:
    context = RequestContext("ipv4:127.0.0.1:9", [("traceparent", "00-1")])
    context.set_code(grpc.StatusCode.NOT_FOUND)

    assert context.peer() == "ipv4:127.0.0.1:9"
    assert list(context.invocation_metadata()) == [("traceparent", "00-1")]
    assert context.code() is grpc.StatusCode.NOT_FOUND
