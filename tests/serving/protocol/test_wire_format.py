from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from trtnode.protos import ModelInferRequest
from trtnode.serving.protocol.wire_format import LONG_BYTES, MOST_FIELDS, cut_field, field_head, varint

RAW = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER


def request_of(*raw: bytes) -> bytes:
    request = ModelInferRequest(model_name="m", id="7", raw_input_contents=raw)
    request.inputs.add(name="x", datatype="FP32", shape=[1, -1])
    return request.SerializeToString()


def told(message: bytes, *raw: bytes) -> bytes | None:
    """Return what a message says, with further raw contents; None if it is none."""
    try:
        request = ModelInferRequest.FromString(message)
    except DecodeError:
        return None
    request.raw_input_contents.extend(raw)
    return bytes(request.SerializeToString(deterministic=True))


def told_in_parts(message: bytes) -> bytes | None:
    others, contents = cut_field(message, RAW)
    return told(others, *map(bytes, contents))


@given(st.lists(st.binary(max_size=300), max_size=4), st.binary(max_size=8), st.data())
def test_a_message_in_two_parts_is_the_message_however_it_is_damaged(
    raw: list[bytes], damage: bytes, data: st.DataObject
) -> None:
    message = request_of(*raw)
    begin = data.draw(st.integers(0, len(message)))
    end = data.draw(st.integers(begin, len(message)))
    damaged = message[:begin] + damage + message[end:]

    assert told_in_parts(message) == told(message)
    assert told_in_parts(damaged) == told(damaged)


def test_contents_are_views_and_the_rest_has_none_of_them() -> None:
    message = request_of(bytes(1000), b"abc") + request_of(b"d")

    others, contents = cut_field(message, RAW)

    assert [bytes(one) for one in contents] == [bytes(1000), b"abc", b"d"]
    assert all(one.obj is message for one in contents)
    assert others == 2 * request_of()


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(request_of(*[b"x"] * MOST_FIELDS), id="many-fields"),
        pytest.param(request_of(b"x") + varint(9 << 3) + b"\1", id="a-number"),
        pytest.param(request_of(b"x") + varint(RAW << 3 | 2) + varint(5) + b"1234", id="cut-off"),
        pytest.param(request_of(b"x") + b"\xff" * 1000, id="a-number-without-an-end"),
        pytest.param(request_of(b"x") + field_head(99, LONG_BYTES) + bytes(LONG_BYTES), id="much-besides"),
    ],
)
def test_a_message_of_another_form_stays_whole(message: bytes) -> None:
    assert cut_field(message, RAW) == (message, ())
