from __future__ import annotations

import struct

import numpy as np
import onnx_ir
import pytest
import tritonclient.grpc as triton
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import InferenceServerException

from tests.serving.conftest import Running, spec
from trtnode.protos import ModelInferRequest, ModelInferResponse
from trtnode.serving.errors import ServingError
from trtnode.serving.protocol import request_cache, tensors
from trtnode.serving.protocol.request_cache import RequestCache
from trtnode.serving.protocol.shared_memory import RegionTable
from trtnode.serving.protocol.wire_signature import DATATYPES, WireSignature

NO_MEMORY = RegionTable(allowed=False, max_bytes=0).of(b"")
FLOAT, BOOL, STRING = onnx_ir.DataType.FLOAT, onnx_ir.DataType.BOOL, onnx_ir.DataType.STRING


def cache_of(*elements: onnx_ir.DataType) -> RequestCache:
    inputs = [spec(name, element, (None,)) for name, element in zip("abc", elements, strict=False)]
    return RequestCache(WireSignature.of("m", inputs, [spec("y", FLOAT, (None,))]), "7")


def request_of(raw: list[bytes], *inputs: tuple[str, str, list[int]], identity: str = "") -> ModelInferRequest:
    request = ModelInferRequest(model_name="m", id=identity, raw_input_contents=raw)
    for name, datatype, shape in inputs:
        request.inputs.add(name=name, datatype=datatype, shape=shape)
    return request


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


def told(cache: RequestCache, request: ModelInferRequest) -> object:
    """Return what reading gives, or the error that it ends with."""
    try:
        parsed = cache.read(request, NO_MEMORY)
    except ServingError as error:
        return type(error), str(error)
    outputs = [tensor.name for tensor in parsed.outputs]
    return {name: array.tolist() for name, array in parsed.feeds.items()}, outputs, parsed[2:]


@st.composite
def requests(draw: st.DrawFn) -> ModelInferRequest:
    """Requests that are mostly alike, of which many are faulty."""
    request = ModelInferRequest(model_name="m", id=draw(st.sampled_from(["", "1", "2"])))
    for name in draw(st.sampled_from(["ab", "ab", "ab", "ba", "a", "aa", "abx"])):
        datatype = draw(st.sampled_from(["FP32"] * 4 + ["BOOL"])) if name == "a" else "BOOL"
        wire = request.inputs.add(name=name, datatype=datatype, shape=[draw(st.sampled_from([2, 2, 2, 1, -1]))])
        if draw(st.integers(0, 7)) == 0:
            wire.parameters["shared_memory_region"].string_param = "r"
        size = (4 if datatype == "FP32" else 1) * abs(wire.shape[0])
        request.raw_input_contents.append(draw(st.sampled_from([bytes(size)] * 6 + [b"\2" * size, bytes(size + 1)])))
    if draw(st.booleans()):
        request.parameters["timeout"].int64_param = draw(st.sampled_from([1000, 2000, -1]))
    for name in draw(st.sampled_from(["", "y", "y", "yy", "z"])):
        request.outputs.add(name=name)
    return request


@given(st.sampled_from([(FLOAT, FLOAT), (FLOAT, BOOL)]), st.lists(requests(), min_size=2, max_size=12))
def test_what_is_remembered_changes_no_answer(
    elements: tuple[onnx_ir.DataType, onnx_ir.DataType], sent: list[ModelInferRequest]
) -> None:
    remembering = cache_of(*elements)

    for request in sent:
        alike = ModelInferRequest.FromString(request.SerializeToString())
        assert told(remembering, request) == told(cache_of(*elements), alike)


def test_a_request_of_a_known_template_is_read_with_its_own_bytes_and_id() -> None:
    cache = cache_of(FLOAT)
    cache.read(request_of([floats(1, 2)], ("a", "FP32", [2]), identity="first"), NO_MEMORY)
    second = request_of([floats(3, 4)], ("a", "FP32", [2]), identity="second")

    parsed = cache.read(second, NO_MEMORY)

    assert parsed.feeds["a"].tolist() == [3, 4]
    assert second.id == "second"
    assert len(cache._templates) == 1


def test_a_known_template_with_another_number_of_bytes_is_refused_as_an_unknown_one() -> None:
    cache = cache_of(FLOAT)
    cache.read(request_of([floats(1, 2)], ("a", "FP32", [2])), NO_MEMORY)

    with pytest.raises(ServingError, match="has 4 bytes of data, but shape"):
        cache.read(request_of([floats(1)], ("a", "FP32", [2])), NO_MEMORY)


@pytest.mark.parametrize(
    ("element", "good", "bad", "message"),
    [
        (BOOL, b"\0\1", b"\0\2", "a byte other than 0 and 1"),
        (STRING, struct.pack("<I", 0) * 2, b"\xff" * 8, "ends inside element"),
    ],
)
def test_tensors_whose_bytes_can_be_wrong_are_checked_every_time(
    element: onnx_ir.DataType, good: bytes | int, bad: bytes, message: str
) -> None:
    cache, datatype = cache_of(element), DATATYPES[element].name
    for _ in range(2):
        cache.read(request_of([good], ("a", datatype, [2])), NO_MEMORY)

    with pytest.raises(ServingError, match=message):
        cache.read(request_of([bad], ("a", datatype, [2])), NO_MEMORY)


def test_clients_that_never_repeat_themselves_fill_no_memory() -> None:
    cache = cache_of(FLOAT)

    for size in range(2 * request_cache.MAX_ENTRIES):
        request = request_of([bytes(4 * size)], ("a", "FP32", [size]))
        request.parameters["mine"].string_param = "x" * size
        parsed = cache.read(request, NO_MEMORY)
        cache.encode(parsed, [parsed.feeds["a"]])

    assert 0 < len(cache._templates) <= request_cache.MAX_ENTRIES
    assert 0 < len(cache._heads) <= request_cache.MAX_ENTRIES
    assert sum(map(len, cache._templates)) <= request_cache.MAX_ENTRIES * request_cache.KEY_BYTES


def test_responses_of_every_shape_are_what_writing_each_anew_gives() -> None:
    cache = cache_of(FLOAT)

    parsed = cache.read(request_of([b""], ("a", "FP32", [0])), NO_MEMORY)

    for size, identity in [(1, ""), (3, "a"), (1, "é" * 200), (0, "b"), (2 * request_cache.COPIED_BYTES, "c")]:
        array = np.arange(size, dtype=np.float32)
        anew = ModelInferResponse(model_name="m", model_version="7", id=identity)
        tensors.write_outputs(anew, cache.signature.outputs, [array], {})
        assert ModelInferResponse.FromString(cache.encode(parsed, [array], identity)) == anew


def test_a_server_answers_like_requests_and_refuses_those_among_them_that_are_wrong(shared: Running) -> None:
    def ask(shape: list[int], size: int, identity: str) -> triton.InferResult:
        x = triton.InferInput("x", shape, "FP32")
        x._raw_content = np.arange(size, dtype=np.float32).tobytes()
        return shared.client.infer("FLOAT", [x], request_id=identity)

    for number in range(3):
        result = ask([1, 3], 3, str(number))
        assert result.as_numpy("y").tolist() == [[0, 1, 2]]
        assert result.get_response().id == str(number)
        with pytest.raises(InferenceServerException, match="has 8 bytes of data"):
            ask([1, 3], 2, "wrong")
