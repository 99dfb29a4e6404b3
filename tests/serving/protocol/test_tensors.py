from __future__ import annotations

import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.protos import InferTensorContents, ModelInferRequest
from trtnode.serving.errors import InvalidOutputError, InvalidRequestError, UnservableModelError
from trtnode.serving.protocol import tensors
from trtnode.serving.protocol.shared_memory import RegionTable
from trtnode.serving.protocol.wire_signature import BYTES, DATATYPES, MOST_STRINGS, WireSignature, WireTensor

NO_MEMORY = RegionTable(allowed=False, max_bytes=0).of(b"")
NUMERIC = [element for element, datatype in DATATYPES.items() if datatype is not BYTES]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def wire(element: onnx_ir.DataType, shape: tuple[int, ...] | None = None) -> WireTensor:
    return WireTensor("x", DATATYPES[element], shape, "input 'x' of model 'm'")


def bytes_of(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@st.composite
def numeric_arrays(draw: st.DrawFn, elements: list[onnx_ir.DataType]) -> tuple[WireTensor, np.ndarray]:
    element = draw(st.sampled_from(elements))
    dtype, shape = DATATYPES[element].numpy, draw(SHAPES)
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if element is onnx_ir.DataType.BOOL:
        data = bytes(byte & 1 for byte in data)
    return wire(element), np.frombuffer(data, dtype).reshape(shape)


@given(numeric_arrays(NUMERIC))
def test_numbers_survive_raw_contents_bit_by_bit(sample: tuple[WireTensor, np.ndarray]) -> None:
    tensor, array = sample

    back = tensors.from_raw(tensor, array.shape, tensors.to_raw(tensor, array))

    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


@given(numeric_arrays([element for element in NUMERIC if DATATYPES[element].contents]))
def test_numbers_survive_typed_contents(sample: tuple[WireTensor, np.ndarray]) -> None:
    tensor, array = sample
    contents = InferTensorContents(**{tensor.datatype.contents: array.ravel().tolist()})

    back = tensors.from_contents(tensor, array.shape, contents)

    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


@given(st.data(), SHAPES)
def test_text_survives_raw_and_typed_contents(data: st.DataObject, shape: tuple[int, ...]) -> None:
    tensor, count = wire(onnx_ir.DataType.STRING), math.prod(shape)
    texts = data.draw(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=count, max_size=count))
    array = np.empty(count, object)
    array[:] = texts
    array = array.reshape(shape)

    raw = tensors.from_raw(tensor, shape, tensors.to_raw(tensor, array))
    typed = tensors.from_contents(tensor, shape, InferTensorContents(bytes_contents=[t.encode() for t in texts]))

    assert raw.shape == typed.shape == shape
    assert raw.tolist() == typed.tolist() == array.tolist()


def test_raw_contents_are_not_copied() -> None:
    data = np.arange(4, dtype=np.float32).tobytes()

    array = tensors.from_raw(wire(onnx_ir.DataType.FLOAT), (2, 2), data)

    assert np.shares_memory(array, np.frombuffer(data, np.uint8))


def test_bfloat16_keeps_its_own_type() -> None:
    array = tensors.from_raw(wire(onnx_ir.DataType.BFLOAT16), (1,), b"\x80\x3f")

    assert array.dtype == ml_dtypes.bfloat16
    assert float(array[0]) == 1.0


@pytest.mark.parametrize("array", [np.array([b"a", b"bc"]), np.array(["a", "bc"]), np.array(["a", b"bc"], object)])
def test_text_of_any_numpy_kind_is_written_as_bytes(array: np.ndarray) -> None:
    assert tensors.to_raw(wire(onnx_ir.DataType.STRING), array) == bytes_of(b"a", b"bc")


def test_arrays_of_any_layout_are_written_row_major() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3).T

    assert tensors.to_raw(wire(onnx_ir.DataType.INT32), array) == np.ascontiguousarray(array).tobytes()


def test_an_output_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidOutputError, match="came out as float64, but is declared FP32"):
        tensors.to_raw(wire(onnx_ir.DataType.FLOAT), np.zeros(1))


@pytest.mark.parametrize(
    ("element", "shape", "data", "message"),
    [
        pytest.param("FLOAT", (2, 2), b"\0" * 15, "has 15 bytes of data, but .* takes 16", id="too-few-bytes"),
        pytest.param("FLOAT", (2, 2), b"\0" * 17, "has 17 bytes of data, but .* takes 16", id="too-many-bytes"),
        pytest.param("FLOAT", (0, 3), b"\0" * 4, "has 4 bytes of data, but .* takes 0", id="data-of-an-empty-tensor"),
        pytest.param("BOOL", (2,), b"\1\2", "has a byte other than 0 and 1", id="no-truth-value"),
        pytest.param("STRING", (1,), b"\3\0\0", "ends inside the length of element 0", id="cut-in-a-length"),
        pytest.param("STRING", (1,), b"\3\0\0\0ab", "ends inside element 0", id="cut-in-an-element"),
        pytest.param("STRING", (1,), b"\xff\xff\xff\xffab", "ends inside element 0", id="length-beyond-the-data"),
        pytest.param("STRING", (2,), bytes_of(b"a"), r"has fewer elements than shape \[2\]", id="too-few-texts"),
        pytest.param("STRING", (1,), bytes_of(b"", b"a"), r"has more elements than shape \[1\]", id="too-many-texts"),
        pytest.param("STRING", (1,), bytes_of(b"\xff"), "has an element that is not UTF-8", id="no-text"),
        pytest.param("FLOAT", (1,) * 70, b"\0" * 4, "has shape", id="rank-beyond-numpy"),
        pytest.param("FLOAT", (0, 2**62, 2**62), b"", "has shape", id="size-beyond-numpy"),
    ],
)
def test_raw_contents_that_do_not_fit_are_refused(
    element: str, shape: tuple[int, ...], data: bytes, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"^input 'x' of model 'm' {message}"):
        tensors.from_raw(wire(onnx_ir.DataType[element]), shape, data)


@pytest.mark.parametrize(
    ("element", "contents", "message"),
    [
        pytest.param(
            "FLOAT", {"int_contents": [1, 2]}, "type FP32 goes into fp32_contents", id="field-of-another-type"
        ),
        pytest.param(
            "FLOAT",
            {"fp32_contents": [1, 2], "fp64_contents": [1]},
            "type FP32 goes into fp32_contents",
            id="two-fields",
        ),
        pytest.param("FLOAT", {"fp32_contents": [1]}, r"has fewer elements than shape \[2\]", id="too-few"),
        pytest.param("FLOAT", {"fp32_contents": [1] * 3}, r"has more elements than shape \[2\]", id="too-many"),
        pytest.param("FLOAT", {}, r"has fewer elements than shape \[2\]", id="none"),
        pytest.param("FLOAT16", {"fp32_contents": [1, 2]}, "goes into raw_input_contents only", id="fp16-is-raw-only"),
        pytest.param("BFLOAT16", {"fp32_contents": [1, 2]}, "goes into raw_input_contents only", id="bf16-is-raw-only"),
        pytest.param("INT8", {"int_contents": [1, 128]}, "outside the range of INT8", id="beyond-int8"),
        pytest.param("UINT8", {"uint_contents": [1, 256]}, "outside the range of UINT8", id="beyond-uint8"),
        pytest.param("INT16", {"int_contents": [1, -32769]}, "outside the range of INT16", id="beyond-int16"),
        pytest.param("STRING", {"bytes_contents": [b"a", b"\xff"]}, "not UTF-8", id="no-text"),
    ],
)
def test_typed_contents_that_do_not_fit_are_refused(element: str, contents: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"^input 'x' of model 'm' .*{message}"):
        tensors.from_contents(wire(onnx_ir.DataType[element]), (2,), InferTensorContents(**contents))


def test_an_empty_tensor_needs_no_contents() -> None:
    array = tensors.from_contents(wire(onnx_ir.DataType.FLOAT), (0, 3), InferTensorContents())

    assert array.shape == (0, 3)


@pytest.mark.parametrize(
    ("declared", "shape", "fits"),
    [
        ((2, 3), (2, 3), True),
        ((-1, 3), (7, 3), True),
        ((-1, 3), (0, 3), True),
        (None, (1, 2, 3), True),
        ((), (), True),
        ((2, 3), (3, 2), False),
        ((2, 3), (2, 3, 1), False),
        ((-1, 3), (-1, 3), False),
        (None, (-1, -1), False),
    ],
)
def test_shapes_are_held_against_the_declared_one(
    declared: tuple[int, ...] | None, shape: tuple[int, ...], fits: bool
) -> None:
    tensor = wire(onnx_ir.DataType.FLOAT, declared)

    if fits:
        tensor.check_shape(shape)
    else:
        with pytest.raises(InvalidRequestError, match=r"^input 'x' of model 'm' has shape \["):
            tensor.check_shape(shape)


def spec(
    name: str, dtype: onnx_ir.DataType | None, shape: tuple[int | str, ...] = ("n", 3), optional: bool = False
) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape, optional=optional)


def test_a_signature_speaks_the_words_of_the_protocol() -> None:
    inputs = [spec("x", onnx_ir.DataType.FLOAT), spec("w", onnx_ir.DataType.INT8, None, optional=True)]

    signature = WireSignature.of("m", inputs, [spec("y", onnx_ir.DataType.STRING, (None, 2))])

    assert signature.inputs["x"].datatype.name == "FP32"
    assert signature.inputs["x"].shape == (-1, 3)
    assert signature.inputs["w"].shape is None
    assert signature.required == {"x"}
    assert [(tensor.name, tensor.datatype.name, tensor.shape) for tensor in signature.outputs] == [
        ("y", "BYTES", (-1, 2))
    ]


def test_tensors_without_a_type_are_left_out_where_the_model_works_without_them() -> None:
    inputs = [spec("x", onnx_ir.DataType.FLOAT), spec("w", onnx_ir.DataType.INT4, optional=True)]
    outputs = [spec("s", None), spec("y", onnx_ir.DataType.FLOAT)]

    signature = WireSignature.of("m", inputs, outputs)

    assert list(signature.inputs) == ["x"]
    assert [tensor.name for tensor in signature.outputs] == ["y"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([spec("x", None)], [spec("y", onnx_ir.DataType.FLOAT)], "no datatype for its input 'x'"),
        ([spec("x", onnx_ir.DataType.INT4)], [spec("y", onnx_ir.DataType.FLOAT)], "no datatype for its input 'x'"),
        ([], [spec("y", None)], "no datatype for any of its outputs"),
    ],
)
def test_a_model_that_the_protocol_cannot_carry_is_refused(inputs: list[Any], outputs: list[Any], message: str) -> None:
    with pytest.raises(UnservableModelError, match=message):
        WireSignature.of("m", inputs, outputs)


def test_surplus_raw_contents_are_refused() -> None:
    signature = WireSignature.of("m", [spec("a", onnx_ir.DataType.BOOL, ())], [spec("y", onnx_ir.DataType.FLOAT)])
    request = ModelInferRequest(raw_input_contents=[b"\1", b"surplus"])
    request.inputs.add(name="a", datatype="BOOL")

    with pytest.raises(InvalidRequestError, match="raw_input_contents has 2 items, but 1 inputs take one"):
        tensors.read_inputs(request, request.raw_input_contents[:], signature, NO_MEMORY)


def test_a_model_that_takes_more_strings_than_a_request_may_have_is_not_served() -> None:
    texts = spec("a", onnx_ir.DataType.STRING, (MOST_STRINGS,))
    more = spec("b", onnx_ir.DataType.STRING, ("n",))

    with pytest.raises(
        UnservableModelError, match=f"{MOST_STRINGS} strings a request, and it takes {MOST_STRINGS + 1}"
    ):
        WireSignature.of("m", [texts, more], [spec("y", onnx_ir.DataType.FLOAT, ())])
