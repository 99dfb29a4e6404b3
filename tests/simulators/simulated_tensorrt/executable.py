"""The computation of an engine, by ONNX Runtime on the host."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnxruntime import OrtValue

from simulated_tensorrt.graphs import Shape, Tensor

PLAIN = frozenset("FLOAT HALF INT8 UINT8 INT32 INT64 BOOL".split())
"""DataTypes that NumPy has itself."""

Sizes = Mapping[str, np.ndarray]
"""Values of inputs on the host."""


class Executable:
    """A model and its session."""

    def __init__(self, model: bytes, tensors: tuple[Tensor, ...]) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        # It would crash on three Ifs within each other.
        unsafe = ["ConstantFolding"]
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], disabled_optimizers=unsafe
        )
        self._inputs = [t for t in tensors if t.is_input]
        self._outputs = [t for t in tensors if not t.is_input]
        self._shapes: dict[object, dict[str, Shape]] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, OrtValue]:
        """Compute all outputs."""
        names = [t.name for t in self._outputs]
        feeds = {t.name: _as_value(inputs[t.name], t) for t in self._inputs}
        return dict(zip(names, self._session.run_with_ort_values(names, feeds), strict=True))

    def output_shapes(self, shapes: Mapping[str, Shape], sizes: Sizes) -> dict[str, Shape]:
        """Shapes of the outputs for shapes of the inputs; -1 where only a run tells.

        They are found by running on zeros, unless they never vary.
        """
        if all(-1 not in t.shape for t in self._outputs):
            return {t.name: t.shape for t in self._outputs}
        key = (tuple(sorted(shapes.items())), tuple((name, tuple(v.ravel())) for name, v in sorted(sizes.items())))
        if key not in self._shapes:
            zeros = {t.name: sizes.get(t.name, np.zeros(shapes[t.name], storage(t))) for t in self._inputs}
            found = {name: tuple(value.shape()) for name, value in self.run(zeros).items()}
            self._shapes[key] = {t.name: t.shape if t.data_dependent else found[t.name] for t in self._outputs}
        return self._shapes[key]


def storage(tensor: Tensor) -> np.dtype:
    """Return NumPy's type for a tensor's elements; for those that it lacks, unsigned numbers."""
    if tensor.dtype in PLAIN:
        return onnx.helper.tensor_dtype_to_np_dtype(tensor.element)
    return np.dtype(f"u{tensor.item_bytes}")


def bytes_of(value: OrtValue) -> bytes:
    """Return the content of a value."""
    return ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())


def _as_value(array: np.ndarray, tensor: Tensor) -> OrtValue:
    if tensor.dtype in PLAIN:
        return OrtValue.ortvalue_from_numpy(array)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(array, tensor.element)
