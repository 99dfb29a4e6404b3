"""Wire tensors to numpy arrays and back.

Repeated fields are sliced before they are read: iterating over them directly takes three times as long.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from trtnode.protos import InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse
from trtnode.serving.errors import InvalidOutputError, InvalidRequestError, SharedMemoryError
from trtnode.serving.protocol.element_bounds import check_elements
from trtnode.serving.protocol.parameters import class_count, tensor_place
from trtnode.serving.protocol.shared_memory import SharedMemory, Window
from trtnode.serving.protocol.wire_signature import BOOL, BYTES, WireSignature, WireTensor

_LENGTH = struct.Struct("<I")
_WIDE = {"int_contents": np.dtype(np.int32), "uint_contents": np.dtype(np.uint32)}
"""Fields of typed contents that carry narrower types too, and the type of their numbers."""
AT_ONCE = 1 << 16
"""Numbers of typed contents that are read at a time, and strings that are written."""


def read_inputs(
    request: ModelInferRequest, raw: Sequence[bytes | memoryview], signature: WireSignature, memory: SharedMemory
) -> dict[str, np.ndarray]:
    """Return the request's arrays by input name.

    Raw contents become read-only views, without a copy. What is in shared memory is copied.

    Args:
        request: The request.
        raw: Its raw contents.
        signature: The model's.
        memory: The regions that inputs may be in.

    Raises:
        InvalidRequestError: An input is unknown, twice there or missing, its type, shape or data don't fit, or there is
            data for more inputs.
        ForbiddenError: An input is in shared memory, to which the caller has no right.
        NotFoundError: An input is in a region of shared memory that isn't registered.
        UnsupportedError: An input is in shared memory, which is off.
    """
    signature.check_counts(len(request.inputs), len(request.outputs))
    used = 0
    feeds: dict[str, np.ndarray] = {}
    for wire in request.inputs[:]:
        name, shape = wire.name, tuple(wire.shape[:])
        tensor = declared_input(signature, feeds, name, wire.datatype, shape)
        place = tensor_place(name, wire.parameters) if wire.parameters else None
        if place is not None:
            feeds[name] = from_raw(tensor, shape, memory.read(place))
        elif not raw:
            feeds[name] = from_contents(tensor, shape, wire.contents)
        elif wire.HasField("contents"):
            raise InvalidRequestError(f"{tensor.label} has typed contents in a request with raw_input_contents")
        elif used < len(raw):
            feeds[name] = from_raw(tensor, shape, raw[used])
            used += 1
        else:
            count = f"{len(raw)} items for {len(request.inputs)} inputs"
            raise InvalidRequestError(f"{tensor.label} has no data: raw_input_contents has {count}")
    signature.check_present(feeds)
    if used < len(raw):
        raise InvalidRequestError(f"raw_input_contents has {len(raw)} items, but {used} inputs take one")
    return feeds


def declared_input(
    signature: WireSignature, feeds: Mapping[str, np.ndarray], name: str, datatype: str, shape: tuple[int, ...]
) -> WireTensor:
    """Return the input that a request names.

    Args:
        signature: The model's.
        feeds: What was read of the request so far.
        name: As the request has it, like the following.
        datatype: In the protocol's words.
        shape: Of any rank.

    Raises:
        InvalidRequestError: It is unknown or twice there, or its type or shape don't fit.
        TooManyElementsError: It has more elements than a request may have.
    """
    tensor = signature.inputs.get(name)
    if tensor is None:
        raise signature.unknown_input(name)
    if name in feeds:
        raise InvalidRequestError(f"{tensor.label} stands twice in the request")
    if datatype != tensor.datatype.name:
        raise InvalidRequestError(f"{tensor.label} has type {datatype!r}, but takes {tensor.datatype.name}")
    tensor.check_shape(shape)
    check_elements(signature, feeds, tensor, shape)
    return tensor


def output_windows(
    requested: Iterable[tuple[str, Mapping[str, InferParameter]]], memory: SharedMemory
) -> dict[str, Window]:
    """Return the shared memory of the outputs that go there, by name.

    Args:
        requested: Name and parameters of each output that the request names.
        memory: The regions.

    Raises:
        InvalidRequestError: A place isn't inside its region, or its parameters are of another type.
        NotFoundError: A region isn't registered.
        UnsupportedError: Shared memory is off.
    """
    windows = {}
    for name, parameters in requested:
        place = tensor_place(name, parameters) if parameters else None
        if place is not None:
            windows[name] = memory.open(place)
    return windows


def class_counts(requested: Iterable[tuple[str, Mapping[str, InferParameter]]]) -> dict[str, int]:
    """Return how many classes are wanted of each output that is wanted as a classification.

    Args:
        requested: Name and parameters of each output that the request names.

    Raises:
        InvalidRequestError: A number isn't one from 1, or the classes should go to shared memory.
    """
    counts = {name: class_count(name, parameters) for name, parameters in requested if parameters}
    return {name: count for name, count in counts.items() if count}


def write_outputs(
    response: ModelInferResponse,
    tensors: Sequence[WireTensor],
    arrays: Sequence[np.ndarray],
    windows: Mapping[str, Window],
) -> None:
    """Add the arrays to the response, as raw contents: numeric typed contents are not what clients read.

    What goes into shared memory keeps an empty item among the raw contents, since clients count these.

    Raises:
        InvalidOutputError: An array isn't of its tensor's type.
        SharedMemoryError: An array is larger than its window.
        InvalidRequestError: The object of a window has shrunk since the request began.
    """
    for tensor, array in zip(tensors, arrays, strict=True):
        output = response.outputs.add(name=tensor.name, datatype=tensor.datatype.name, shape=array.shape)
        window = windows.get(tensor.name)
        if window is None:
            response.raw_output_contents.append(to_raw(tensor, array))
        else:
            output.parameters["shared_memory_region"].string_param = window.place.region
            output.parameters["shared_memory_offset"].int64_param = window.place.offset
            output.parameters["shared_memory_byte_size"].int64_param = write_window(tensor, array, window)
            response.raw_output_contents.append(b"")


def write_window(tensor: WireTensor, array: np.ndarray, window: Window) -> int:
    """Write the array as raw contents into shared memory; return how many bytes these are.

    Raises:
        InvalidOutputError: The array isn't of the tensor's type.
        SharedMemoryError: It is larger than the window.
    """
    if tensor.datatype is BYTES:
        array = np.frombuffer(to_raw(tensor, array), np.uint8)
    else:
        _check_type(tensor, array)
    if array.nbytes > window.place.byte_size:
        raise SharedMemoryError(
            f"{tensor.label} has {array.nbytes} bytes, but {window.place.byte_size} are there for it in the shared "
            f"memory region {window.place.region!r}"
        )
    window.write(array)
    return array.nbytes


def from_raw(tensor: WireTensor, shape: tuple[int, ...], data: bytes | memoryview) -> np.ndarray:
    """Return the array that ``data`` holds: little-endian and row-major, or BYTES with a length before each element.

    Raises:
        InvalidRequestError: The size isn't that of the shape, or an element isn't valid.
    """
    if tensor.datatype.numpy.hasobject:
        return _element_array(tensor, shape, _split_elements(tensor, shape, bytes(data)))
    dtype = tensor.datatype.numpy
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise InvalidRequestError(
            f"{tensor.label} has {len(data)} bytes of data, but shape {list(shape)} of type {tensor.datatype.name} "
            f"takes {expected}"
        )
    array = shaped(tensor, np.frombuffer(data, dtype), shape)
    if tensor.datatype is BOOL and array.view(np.uint8).max(initial=0) > 1:
        raise InvalidRequestError(f"{tensor.label} has a byte other than 0 and 1 in its data")
    return aligned(array)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return an array whose elements lie where their type wants them: itself, or a copy."""
    return array if array.flags.aligned else array.copy()


def from_contents(tensor: WireTensor, shape: tuple[int, ...], contents: InferTensorContents) -> np.ndarray:
    """Return the array that typed contents hold.

    Raises:
        InvalidRequestError: Another field than the type's own is filled, the number of elements isn't that of the
            shape, or an element is outside the type's range.
    """
    datatype = tensor.datatype
    filled = [field.name for field, _ in contents.ListFields()]
    if any(name != datatype.contents for name in filled):
        place = datatype.contents or "raw_input_contents only"
        raise InvalidRequestError(f"{tensor.label} has {filled}, but type {datatype.name} goes into {place}")
    values = getattr(contents, datatype.contents) if datatype.contents else []
    check_count(tensor, shape, len(values))
    if datatype.numpy.hasobject:
        return _element_array(tensor, shape, values)
    if datatype.contents in _WIDE:
        return shaped(tensor, _narrow(tensor, _numbers(values, _WIDE[datatype.contents])), shape)
    return shaped(tensor, _numbers(values, datatype.numpy), shape)


def _numbers(values: Sequence[float], dtype: np.dtype) -> np.ndarray:
    """Return an array of numbers; Python's objects of them, of 32 bytes each, are made of some at a time."""
    array = np.empty(len(values), dtype)
    for start in range(0, len(values), AT_ONCE):
        array[start : start + AT_ONCE] = values[start : start + AT_ONCE]
    return array


def to_raw(tensor: WireTensor, array: np.ndarray) -> bytes:
    """Return an array's elements as raw contents.

    Raises:
        InvalidOutputError: The array isn't of the tensor's type.
    """
    if tensor.datatype is BYTES:
        elements = array.ravel().tolist()
        pieces = range(0, len(elements), AT_ONCE)
        return b"".join(b"".join(_with_lengths(elements[start : start + AT_ONCE])) for start in pieces)
    _check_type(tensor, array)
    return array.tobytes()


def raw_view(tensor: WireTensor, array: np.ndarray) -> memoryview:
    """Return an array's elements as raw contents, without a copy where they have that form already.

    Raises:
        InvalidOutputError: The array isn't of the tensor's type.
    """
    if tensor.datatype is BYTES:
        return memoryview(to_raw(tensor, array))
    _check_type(tensor, array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _check_type(tensor: WireTensor, array: np.ndarray) -> None:
    if array.dtype != tensor.datatype.numpy:
        raise InvalidOutputError(f"{tensor.label} came out as {array.dtype}, but is declared {tensor.datatype.name}")


def _with_lengths(elements: Iterable[str | bytes]) -> Iterable[bytes]:
    for element in elements:
        data = element.encode() if isinstance(element, str) else element
        yield _LENGTH.pack(len(data))
        yield data


def _split_elements(tensor: WireTensor, shape: tuple[int, ...], data: bytes) -> list[bytes]:
    elements: list[bytes] = []
    count, position = math.prod(shape), 0
    while position < len(data) and len(elements) <= count:  # one too many is enough to know
        start = position + _LENGTH.size
        if start > len(data):
            raise InvalidRequestError(f"{tensor.label} ends inside the length of element {len(elements)}")
        position = start + _LENGTH.unpack_from(data, position)[0]
        if position > len(data):
            raise InvalidRequestError(f"{tensor.label} ends inside element {len(elements)}")
        elements.append(data[start:position])
    return elements


def _element_array(tensor: WireTensor, shape: tuple[int, ...], elements: Sequence[bytes]) -> np.ndarray:
    check_count(tensor, shape, len(elements))
    array = np.empty(len(elements), object)
    try:
        # Text, because onnxruntime turns an object of any other type into its Python repr.
        array[:] = [element.decode() for element in elements] if tensor.datatype is BYTES else elements
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{tensor.label} has an element that is not UTF-8 text") from None
    return shaped(tensor, array, shape)


def check_count(tensor: WireTensor, shape: tuple[int, ...], found: int) -> None:
    """Refuse another number of elements than the shape's.

    Raises:
        InvalidRequestError: It is another.
    """
    count = math.prod(shape)
    if found != count:
        relation = "fewer" if found < count else "more"
        raise InvalidRequestError(f"{tensor.label} has {relation} elements than shape {list(shape)} takes ({count})")


def _narrow(tensor: WireTensor, wide: np.ndarray) -> np.ndarray:
    narrow = wide.astype(tensor.datatype.numpy)
    if not np.array_equal(narrow, wide):
        raise InvalidRequestError(f"{tensor.label} has an element outside the range of {tensor.datatype.name}")
    return narrow


def shaped(tensor: WireTensor, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return as many elements as the shape has, in that shape.

    Raises:
        InvalidRequestError: numpy has no such shape.
    """
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:  # numpy limits the rank, and the sizes beside a zero
        raise InvalidRequestError(f"{tensor.label} has shape {list(shape)[:16]}: {error}") from None
