"""ONNX Runtime: runs every node that no engine takes, and every model whole where engines can't answer."""

from __future__ import annotations

import ctypes
import functools
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_c

from engines.errors import ExecutionError, ModelLoadError
from engines.installation import warn_of_overlay
from partitioner import TensorSpec
from partitioner.versions import VersionLimits

OLD_OPSET = 13
OLD_IR_VERSION = 8
"""Of models that every ONNX Runtime reads."""

CUDA_PROVIDER = "CUDAExecutionProvider"
CUDA_SETTINGS = {
    "device_id": "0",
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "HEURISTIC",
    "do_copy_in_default_stream": "1",
    "use_tf32": "0",
}
"""Of ONNX Runtime's CUDA provider. Native stages are the reference, so they keep all bits of float32."""

TensorValue = Any
"""A tensor on its way between stages: a numpy array, or an ``OrtValue`` of the C++ binding."""

onnxruntime.set_default_logger_severity(4)  # its errors reach the caller as exceptions; its warnings are noise here


class NativeSession:
    """One model, or one native stage of a model, in ONNX Runtime. Safe for concurrent runs."""

    def __init__(
        self,
        model: pathlib.Path | onnx.ModelProto,
        *,
        threads: int | None = None,
        shares_cores: bool = True,
        optimize: bool = True,
        profile_to: pathlib.Path | None = None,
        name: str = "model",
    ) -> None:
        """Load a model.

        Args:
            model: A file, or a model small enough for one protobuf message.
            threads: Threads within an operator; None leaves it to the library.
            shares_cores: Whether something else computes on the same cores between runs. Without this, the
                session's threads keep spinning after a run and starve the next engine for milliseconds.
            optimize: Whether ONNX Runtime may rewrite the graph. Convolutions are several times slower without.
            profile_to: How the name of a file begins that gets the times of all nodes; runs are slower then.
            name: For messages.

        Raises:
            ModelLoadError: ONNX Runtime refuses the model.
        """
        warn_of_overlay()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        if threads is not None:
            options.intra_op_num_threads = threads
        if not optimize:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if shares_cores:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        if profile_to is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(profile_to)
        source = str(model) if isinstance(model, pathlib.Path) else model.SerializeToString()
        try:
            session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the binding has a class of its own for each status code
            raise ModelLoadError(name, clean_message(error)) from error
        self._session = session
        # The public wrappers cost more than a small model's whole run: about 35 us against 2 us.
        self._raw = session._sess
        types = [v.type for v in (*session.get_inputs(), *session.get_outputs())]
        self._converts = any(t in SMALL_FLOATS_BY_TYPE for t in types)
        self.inputs: tuple[str, ...] = tuple(v.name for v in session.get_inputs())
        self.outputs: tuple[str, ...] = tuple(v.name for v in session.get_outputs())

    def value_types(self) -> dict[str, tuple[str, Sequence[int | str | None]]]:
        """Type (for example ``tensor(float)``) and shape of every output, as ONNX Runtime infers them."""
        return {v.name: (v.type, v.shape) for v in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run on numpy arrays, and lists or None for sequences and optionals.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        wanted = self.outputs if outputs is None else outputs
        try:
            if self._converts:
                return self._run_small_floats(feeds, wanted)
            result: list[Any] = self._raw.run(wanted, feeds, None)
        except Exception as error:
            raise ExecutionError(f"onnxruntime: {clean_message(error)}") from error
        return result

    def run_objects(self, feeds: Mapping[str, Any]) -> list[Any]:
        """As ``run``, on a mixture of Python objects and values that ``run_tensors`` has given."""
        return self.run({n: onnxruntime.OrtValue(v) if isinstance(v, ort_c.OrtValue) else v for n, v in feeds.items()})

    def run_tensors(self, feeds: Mapping[str, TensorValue]) -> list[Any]:
        """Run without copying: on arrays or ``OrtValue``s, giving ``OrtValue``s.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        values, _owners = _wrapped(feeds)
        try:
            return list(self._raw.run_with_ort_values(values, self.outputs, None))
        except Exception as error:
            raise ExecutionError(f"onnxruntime: {clean_message(error)}") from error

    def _run_small_floats(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> list[Any]:
        """The binding's own ``run`` knows no numpy type for bfloat16 and the 8-bit floats."""
        values, _owners = _wrapped(feeds)
        return [as_array(value).copy() for value in self._raw.run_with_ort_values(values, outputs, None)]

    def end_profiling(self) -> pathlib.Path:
        """Write the times of all runs, as JSON in Chrome's trace format."""
        return pathlib.Path(self._session.end_profiling())

    def bind(self, buffers: Mapping[str, np.ndarray]) -> BoundSession:
        """Runs of this session on fixed buffers, among which are all its inputs and outputs."""
        return BoundSession(self._session, self._raw, buffers)


class BoundSession:
    """A session's runs on fixed buffers.

    Attributes:
        outputs: Names of the outputs.
    """

    def __init__(self, session: Any, raw: Any, buffers: Mapping[str, np.ndarray]) -> None:
        self.outputs = [v.name for v in session.get_outputs()]
        self._binding = session.io_binding()
        self._raw = raw
        self._raw_binding = self._binding._iobinding
        self._buffers: dict[str, np.ndarray] = {}  # the binding holds bare addresses
        for name in (v.name for v in session.get_inputs()):
            self._bind(self._binding.bind_input, name, buffers[name])
        self.write_to(buffers)

    def write_to(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Bind outputs to other buffers, where they are among these."""
        for name in self.outputs:
            if name in buffers:
                self._bind(self._binding.bind_output, name, buffers[name])

    def run(self) -> None:
        """Run on the bound buffers.

        Raises:
            ExecutionError: ONNX Runtime failed.
        """
        try:
            self._raw.run_with_iobinding(self._raw_binding, None)
        except Exception as error:
            raise ExecutionError(f"onnxruntime: {clean_message(error)}") from error

    def _bind(self, bind: Callable[..., None], name: str, buffer: np.ndarray) -> None:
        bind(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        self._buffers[name] = buffer


@functools.cache
def has_cuda() -> bool:
    """Whether this build of ONNX Runtime computes on NVIDIA GPUs."""
    return CUDA_PROVIDER in onnxruntime.get_available_providers()


def open_cuda_session(model: onnx.ModelProto, *, stream: int, name: str) -> Any:
    """Load a model for the GPU. Its work goes to one stream, in order, and a run doesn't wait for it.

    The TensorRT provider is never asked for: it would build engines of its own, with a library of another version.

    Args:
        model: Small enough for one protobuf message.
        stream: The stream's handle.
        name: For messages.

    Returns:
        An ``onnxruntime.InferenceSession``.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model, or can't use the GPU.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    settings = {**CUDA_SETTINGS, "user_compute_stream": str(stream)}
    providers = [(CUDA_PROVIDER, settings), "CPUExecutionProvider"]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    except Exception as error:  # the binding has a class of its own for each status code
        raise ModelLoadError(name, clean_message(error)) from error
    if session.get_providers()[0] != CUDA_PROVIDER:
        raise ModelLoadError(name, "its CUDA provider can't start here; trtnode[tensorrt] installs what it needs")
    session.disable_fallback()  # it would answer a failure by silently opening the model on the CPU
    return session


def asynchronous_run() -> Any:
    """Options of a run that leaves its work on the stream."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


def _wrapped(feeds: Mapping[str, TensorValue]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """``OrtValue``s of feeds, and the arrays whose memory they use, which must outlive them."""
    arrays = {n: np.asarray(v, order="C") for n, v in feeds.items() if isinstance(v, np.ndarray)}  # stays 0-d
    return {n: as_ort_value(v) for n, v in {**feeds, **arrays}.items()}, list(arrays.values())


def as_ort_value(value: TensorValue) -> Any:
    """Wrap a contiguous array without copying it; an ``OrtValue`` stays as it is. The array must outlive the result."""
    if isinstance(value, np.ndarray):
        if value.dtype in _SMALL_FLOATS:
            bits = value.view(f"u{value.dtype.itemsize}")
            return ort_c.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _SMALL_FLOATS[value.dtype])
        return ort_c.OrtValue.ortvalue_from_numpy(value, _CPU)
    return value


def as_array(value: TensorValue) -> np.ndarray:
    """View an ``OrtValue`` as an array without copying it; an array stays as it is."""
    if isinstance(value, np.ndarray):
        return value
    dtype = SMALL_FLOATS_BY_TYPE.get(value.data_type())
    if dtype is None:
        shared: np.ndarray = value.numpy()
        return shared
    memory = (ctypes.c_uint8 * value.tensor_size_in_bytes()).from_address(value.data_ptr())
    return np.frombuffer(memory, dtype.numpy()).reshape(value.shape()).copy()


def native_signature(model: pathlib.Path | onnx.ModelProto) -> dict[str, tuple[str, Sequence[int | str | None]]]:
    """Types and shapes of a model's outputs as ONNX Runtime infers them.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    return NativeSession(model).value_types()


def native_version() -> str:
    """Version of the library."""
    version: str = onnxruntime.__version__
    return version


@functools.cache
def native_limits() -> VersionLimits:
    """The newest opset and IR version that this ONNX Runtime reads. It has no call for them, so models are tried."""
    opset = next(v for v in range(onnx.defs.onnx_opset_version(), 0, -1) if _reads(v, OLD_IR_VERSION))
    ir_version = next(v for v in range(onnx.IR_VERSION, 0, -1) if _reads(OLD_OPSET, v))
    return VersionLimits(opset=opset, ir_version=ir_version)


def _reads(opset: int, ir_version: int) -> bool:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.GraphProto(name="probe", input=[value], output=[value])
    imports = [onnx.OperatorSetIdProto(domain="", version=opset)]
    try:
        NativeSession(onnx.ModelProto(ir_version=ir_version, opset_import=imports, graph=graph))
    except ModelLoadError:
        return False
    return True


def runs_as_array(spec: TensorSpec) -> bool:
    """Whether ONNX Runtime's Python binding can share a value's memory with numpy."""
    return spec.dtype is not None and spec.dtype in _NUMERIC


def clean_message(error: Exception) -> str:
    """ONNX Runtime's message without source paths, function names and its own prefix."""
    text = str(error).split("Stacktrace:")[0]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"Load model from .*? failed:\s*", "", text)
    text = re.sub(r"/\S+\.(?:cc|h):\d+ [^\n]*?\) (?:const )?", "", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:500] or type(error).__name__


SMALL_FLOATS_BY_TYPE = {
    "tensor(bfloat16)": ir.DataType.BFLOAT16,
    "tensor(float8e4m3fn)": ir.DataType.FLOAT8E4M3FN,
    "tensor(float8e4m3fnuz)": ir.DataType.FLOAT8E4M3FNUZ,
    "tensor(float8e5m2)": ir.DataType.FLOAT8E5M2,
    "tensor(float8e5m2fnuz)": ir.DataType.FLOAT8E5M2FNUZ,
}
"""Types that numpy knows through ml_dtypes, and ONNX Runtime's binding not at all."""

_SMALL_FLOATS = {dtype.numpy(): int(dtype) for dtype in SMALL_FLOATS_BY_TYPE.values()}

_CPU = ort_c.OrtDevice(ort_c.OrtDevice.cpu(), ort_c.OrtDevice.default_memory(), 0)

_NUMERIC = frozenset(
    {
        ir.DataType.BOOL,
        ir.DataType.DOUBLE,
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.INT8,
        ir.DataType.INT16,
        ir.DataType.INT32,
        ir.DataType.INT64,
        ir.DataType.UINT8,
        ir.DataType.UINT16,
        ir.DataType.UINT32,
        ir.DataType.UINT64,
    }
)
