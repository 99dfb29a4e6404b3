"""Tensors of the types that ONNX Runtime's binding can't exchange with numpy: 8-bit floats, bfloat16, 2 and 4 bits.

numpy has them through ml_dtypes, one element a byte or two. ONNX Runtime packs integers of 2 and 4 bits into bytes,
the first element into the lowest bits. ``trtnode.engines.onnxruntime.session`` calls this where a model takes or gives
one.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.onnxruntime.library import ort_c

SMALL_TYPES = {
    f"tensor({dtype.name.lower()})": dtype
    for dtype in (
        ir.DataType.BFLOAT16,
        ir.DataType.FLOAT8E4M3FN,
        ir.DataType.FLOAT8E4M3FNUZ,
        ir.DataType.FLOAT8E5M2,
        ir.DataType.FLOAT8E5M2FNUZ,
        ir.DataType.FLOAT8E8M0,
        ir.DataType.INT4,
        ir.DataType.UINT4,
        ir.DataType.INT2,
        ir.DataType.UINT2,
    )
}
"""By ONNX Runtime's name."""

SMALL_DTYPES = {dtype.numpy(): dtype for dtype in SMALL_TYPES.values()}
"""By numpy's type."""

BYTE_BITS = 8


@functools.cache
def processor() -> Any:
    """Return the ``OrtDevice`` of tensors in main memory."""
    return ort_c.OrtDevice(ort_c.OrtDevice.cpu(), ort_c.OrtDevice.default_memory(), 0)


def small_ort_value(array: np.ndarray) -> Any:
    """Return an ``OrtValue`` of a contiguous array whose type is one of ``SMALL_DTYPES``.

    Of types of whole bytes it shares the memory, which must outlive it; others are packed into memory of its own.
    """
    dtype = SMALL_DTYPES[array.dtype]
    if dtype.bitwidth >= BYTE_BITS:
        bits = array.view(f"u{array.dtype.itemsize}")
        return ort_c.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, int(dtype))
    value = ort_c.OrtValue.ortvalue_from_shape_and_onnx_type(array.shape, int(dtype), processor())
    packed = _packed(array, dtype.bitwidth)
    ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
    return value


def small_array(value: Any, dtype: ir.DataType) -> np.ndarray:
    """Return a copy of an ``OrtValue`` whose type is one of ``SMALL_TYPES``."""
    memory = (ctypes.c_uint8 * value.tensor_size_in_bytes()).from_address(value.data_ptr())
    content = np.frombuffer(memory, np.uint8)
    if dtype.bitwidth < BYTE_BITS:
        return _unpacked(content, dtype, value.shape())
    return content.view(dtype.numpy()).reshape(value.shape()).copy()


def _packed(array: np.ndarray, bits: int) -> np.ndarray:
    """Return the bytes of an array of ``bits`` an element, ``uint8[ceil(size * bits / 8)]``."""
    in_a_byte = BYTE_BITS // bits
    codes = np.zeros(-(-array.size // in_a_byte) * in_a_byte, np.uint8)
    codes[: array.size] = array.reshape(-1).view(np.uint8) & (2**bits - 1)
    packed: np.ndarray = np.bitwise_or.reduce(codes.reshape(-1, in_a_byte) << _shifts(bits), axis=1, dtype=np.uint8)
    return packed


def _unpacked(content: np.ndarray, dtype: ir.DataType, shape: tuple[int, ...]) -> np.ndarray:
    bits = dtype.bitwidth
    high = (content[:, None] >> _shifts(bits)) << np.uint8(BYTE_BITS - bits)  # a code in the highest bits of a byte
    signed = high.view(np.int8) if dtype.is_signed() else high
    elements: np.ndarray = (signed >> (BYTE_BITS - bits)).reshape(-1)[: math.prod(shape)].astype(dtype.numpy())
    return elements.reshape(shape)


def _shifts(bits: int) -> np.ndarray:
    return np.arange(0, BYTE_BITS, bits, dtype=np.uint8)
