"""Sessions of ONNX Runtime, which runs every node that no engine takes, and whole models where engines can't answer.

Runs call the raw binding (``InferenceSession._sess``), because the public wrapper costs more than a small model's run.
No other file calls it.
Idle threads of ONNX Runtime spin after a run and starve the next engine for milliseconds.
``session.force_spinning_stop`` ends that wherever something else computes on the same cores.
A model that is one session and runs alone, natively or as a sparse engine, lets them spin, because waking threads costs
half of a small model's run. ``tune`` measures the setting that is served.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.custom_operators import register
from trtnode.engines.cores import quota_threads
from trtnode.engines.errors import ExecutionError, MemoryLimitError, ModelLoadError
from trtnode.engines.onnxruntime.exact_sums import exact_settings, with_unsigned_weights
from trtnode.engines.onnxruntime.installation import warn_of_overlay
from trtnode.engines.onnxruntime.library import onnxruntime, ort_c
from trtnode.engines.onnxruntime.memory_limit import is_refusal, session_options
from trtnode.engines.onnxruntime.small_types import SMALL_DTYPES, SMALL_TYPES, processor, small_array, small_ort_value
from trtnode.engines.onnxruntime.workarounds.empty_tensors import unsafe_inputs
from trtnode.engines.onnxruntime.workarounds.locales import REFUSAL, with_universal_locale
from trtnode.engines.onnxruntime.workarounds.mentioned import mentions
from trtnode.engines.onnxruntime.workarounds.optimizers import optimizer_options
from trtnode.engines.system_limits import raise_limit
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.mapped_weights import read_around_weights
from trtnode.partitioner.model.regular_files import without_links

PLAIN_TYPES = frozenset(
    map(ir.DataType.__getitem__, "BOOL DOUBLE FLOAT FLOAT16 INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64".split())
)
"""Element types of numpy's own that ONNX Runtime's binding exchanges with it."""

NUMBERS = re.compile(r"tensor\((float|float16|double|u?int(8|16|32|64))\)")
"""Types of ONNX Runtime that DLPack has, too."""

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's option for the folder of the weights of a model that isn't read from a file."""

PACKING = ("uantize", "QLinear", "Integer", "NBits", "Bnb4", "QAttention", "QGemm", "QMoE")
"""Parts of the names of operators whose kernels may compute other sums from weights that aren't packed."""

TensorValue = Any
"""A tensor on its way between stages: a numpy array, or an ``OrtValue`` of the C++ binding."""


class NativeSession:
    """One model, or one native stage of a model, in ONNX Runtime. Safe for concurrent runs."""

    def __init__(
        self,
        model: pathlib.Path | onnx.ModelProto,
        *,
        threads: int | None = None,
        shares_cores: bool = True,
        brief: bool = False,
        packs: bool = True,
        optimize: bool = True,
        unfused: bool = False,
        exact: bool = True,
        memory_pattern: bool = True,
        operators: pathlib.Path | None = None,
        name: str = "model",
    ) -> None:
        """Load a model.

        Args:
            model: A file, or a model small enough for one protobuf message.
            threads: Threads within an operator; None leaves it to the library.
            shares_cores: Stop the session's threads after a run, because something else computes on their cores.
            brief: For a few runs: large weights stay in their file, and threads that wait for work don't spin.
            packs: Rearrange weights as products read them, which costs more than it saves in a few runs.
            optimize: Let ONNX Runtime rewrite the graph. Convolutions are several times slower without.
            unfused: Compute what stands between DequantizeLinear and QuantizeLinear in floating point.
            exact: Keep sums of 8-bit products exact on this processor. ONNX Runtime's defaults don't on all.
            memory_pattern: Learn from a run which memory the next one takes. It costs memory, and saves 0.1 us a node.
            operators: A library of custom operators that the model may use, beside those in use.
            name: For messages.

        Raises:
            ModelLoadError: ONNX Runtime refuses the model.
        """
        warn_of_overlay()
        options = {**session_options(), **({"session.force_spinning_stop": "1"} if shares_cores else {})}
        options |= {"session.intra_op.allow_spinning": "0"} if brief else {}
        options |= {} if packs or mentions(model, PACKING) else {"session.disable_prepacking": "1"}
        model = with_unsigned_weights(model) if exact else model
        options |= optimizer_options(model) if optimize else {}
        source = str(model) if isinstance(model, pathlib.Path) else model.SerializeToString()
        if brief and isinstance(model, pathlib.Path):
            file = without_links(model)  # ONNX Runtime takes weights from its own folder alone
            if (around := _around_weights(file)) is not None:
                source, options[WEIGHTS_FOLDER] = around, str(file.parent)
        settings = tuple(exact_settings(model, unfused=unfused)) if exact else ({},)
        for number, setting in enumerate(settings, 1):
            try:
                given = new_options({**options, **setting}, threads, optimize=optimize, memory_pattern=memory_pattern)
                session = _open(source, given, operators)
                break
            except Exception as error:  # the binding has a class of its own for each status code
                raise_limit(error)
                if number == len(settings):
                    raise ModelLoadError(name, clean_message(error)) from error
        self._session = session
        self._raw = session._sess
        self._ending, self._ranks = unsafe_inputs(model)
        types = [v.type for v in (*session.get_inputs(), *session.get_outputs())]
        self._converts = any(t in SMALL_TYPES for t in types)
        self._plain = {v.name for v in session.get_outputs() if NUMBERS.fullmatch(v.type)}
        self._has_objects = any(t == "tensor(string)" or not t.startswith("tensor(") for t in types)
        self.inputs: tuple[str, ...] = tuple(v.name for v in session.get_inputs())
        self.outputs: tuple[str, ...] = tuple(v.name for v in session.get_outputs())

    def value_types(self) -> dict[str, tuple[str, Sequence[int | str | None]]]:
        """Return the type (for example ``tensor(float)``) and shape of every output, as ONNX Runtime infers them."""
        return {v.name: (v.type, v.shape) for v in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run on numpy arrays, and lists or None for sequences and optionals.

        Raises:
            ExecutionError: ONNX Runtime failed, or would end the process.
        """
        wanted = self.outputs if outputs is None else outputs
        self._check_shapes(feeds)
        try:
            if self._converts:
                return self._run_small_types(feeds, wanted)
            result: list[Any] = self._raw.run(wanted, feeds, None)
        except Exception as error:
            raise _failure(error) from error
        return result

    def run_objects(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Run as ``run`` does, on Python objects and results of ``run_tensors``."""
        return self.run({n: onnxruntime.OrtValue(v) if isinstance(v, ort_c.OrtValue) else v for n, v in feeds.items()})

    def run_tensors(self, feeds: Mapping[str, TensorValue]) -> list[Any]:
        """Run without copies, on arrays or ``OrtValue``s, and return ``OrtValue``s.

        Raises:
            ExecutionError: ONNX Runtime failed, or would end the process.
        """
        return self._run_values(feeds, self.outputs)

    def run_keeping(self, feeds: Mapping[str, TensorValue], outputs: Sequence[str], kept: Collection[str]) -> list[Any]:
        """Run as ``run`` does; the outputs that are kept, which a later run gets as they are, aren't copied."""
        if self._has_objects:
            return self.run({name: as_array(value) for name, value in feeds.items()}, outputs)
        named = zip(outputs, self._run_values(feeds, outputs), strict=True)
        return [value if name in kept else _own_array(value) for name, value in named]

    def _run_values(self, feeds: Mapping[str, TensorValue], outputs: Sequence[str]) -> list[Any]:
        """Run on arrays or ``OrtValue``s, and return ``OrtValue``s."""
        self._check_shapes(feeds)
        values, _owners = _wrapped(feeds)
        try:
            results = self._raw.run_with_ort_values(values, outputs, None)
        except Exception as error:
            raise _failure(error) from error
        # The end of an iteration would cost 30 us, and each item by itself keeps the memory of all.
        return [
            ort_c.OrtValue.from_dlpack(results.dlpack_at(index)) if name in self._plain else results[index]
            for index, name in enumerate(outputs)
        ]

    def _run_small_types(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> list[Any]:
        """Run on types that the binding's own ``run`` doesn't know."""
        values, _owners = _wrapped(feeds)
        return [as_array(value).copy() for value in self._raw.run_with_ort_values(values, outputs, None)]

    def _check_shapes(self, feeds: Mapping[str, Any]) -> None:
        for name, operator in self._ending.items():
            if 0 in _shape_of(feeds.get(name)):
                problem = f"{name!r} has no elements, and ONNX Runtime's {operator} behind it would end the process."
                raise ExecutionError(f"{problem} Send at least one.")
        for name, (operator, rank) in self._ranks.items():
            if name in feeds and len(_shape_of(feeds[name])) < rank:
                problem = f"{name!r} has too few axes: ONNX Runtime's {operator} behind it would end the process."
                raise ExecutionError(f"{problem} Send an array of {rank} axes.")

    def bind(self, buffers: Mapping[str, np.ndarray]) -> BoundSession:
        """Bind this session to fixed buffers, among which are all its inputs and outputs."""
        return BoundSession(self._session, self._raw, buffers)


def open_observed(model: pathlib.Path, *, unfused: bool = False, exact: bool = True) -> NativeSession:
    """Load a model with many outputs, without fusions if need be: some of ONNX Runtime's remove an output.

    Args:
        model: A file.
        unfused: As of ``NativeSession``.
        exact: As of ``NativeSession``.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    try:
        return NativeSession(model, name="the cleaned model", brief=True, unfused=unfused, exact=exact)
    except ModelLoadError:
        return NativeSession(model, name="the cleaned model", brief=True, optimize=False)


def with_basic_optimizations(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model as ONNX Runtime simplifies it: constants folded, BatchNormalization merged, ONNX's operators only.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
    """
    with TemporaryFolder() as folder:
        options = new_options(optimizer_options(model), 1)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folder / "basic.onnx")
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the binding has a class of its own for each status code
            raise_limit(error)
            raise ModelLoadError("model", clean_message(error)) from error
        return onnx.load(folder / "basic.onnx")


def try_custom_operators(library: pathlib.Path) -> str | None:
    """Load a library of custom operators; return ONNX Runtime's reason where it can't be."""
    try:
        onnxruntime.SessionOptions().register_custom_ops_library(str(library))
    except Exception as error:  # the binding has a class of its own for each status code
        return clean_message(error)
    return None


def new_options(
    settings: Mapping[str, str], threads: int | None = None, *, optimize: bool = True, memory_pattern: bool = True
) -> Any:
    """Return an ``onnxruntime.SessionOptions`` with the custom operators in use; arguments as of ``NativeSession``."""
    options = onnxruntime.SessionOptions()
    options.enable_mem_pattern = memory_pattern
    options.log_severity_level = 4
    if (count := threads or quota_threads()) is not None:
        options.intra_op_num_threads = count
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in settings.items():
        options.add_session_config_entry(key, value)
    register(options)
    return options


def _open(source: str | bytes, options: Any, operators: pathlib.Path | None) -> Any:
    """Open an ``onnxruntime.InferenceSession``; it raises whatever the library raises."""
    onnxruntime.set_default_logger_severity(4)  # errors are raised, and warnings help no user
    if operators is not None:
        options.register_custom_ops_library(str(operators))
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        model = _in_universal_locale(source) if REFUSAL in str(error) else None
        if model is None:
            raise
    if isinstance(source, str):
        options.add_session_config_entry(WEIGHTS_FOLDER, str(pathlib.Path(source).parent))
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _around_weights(file: pathlib.Path) -> bytes | None:
    """Return a model whose large weights stay in its file; None where it has none, or else than as initializers."""
    found = read_around_weights(file)
    if found is None:
        return None
    model, _ = found
    attributes = (attribute.t for node in model.graph.node for attribute in node.attribute)
    return None if any(map(onnx.external_data_helper.uses_external_data, attributes)) else model.SerializeToString()


def _in_universal_locale(source: str | bytes) -> bytes | None:
    """Return a model that needs no locale of a language; None where there is none."""
    model = onnx.load(source, load_external_data=False) if isinstance(source, str) else onnx.load_from_string(source)
    return model.SerializeToString() if with_universal_locale(model) else None


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
        """Bind outputs to these buffers; others stay bound."""
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
            raise _failure(error) from error

    def _bind(self, bind: Callable[..., None], name: str, buffer: np.ndarray) -> None:
        bind(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        self._buffers[name] = buffer


def _wrapped(feeds: Mapping[str, TensorValue]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return ``OrtValue``s of feeds, and the arrays whose memory they use, which must outlive them."""
    arrays = {n: np.asarray(v, order="C") for n, v in feeds.items() if isinstance(v, np.ndarray)}  # stays 0-d
    return {n: as_ort_value(v) for n, v in {**feeds, **arrays}.items()}, list(arrays.values())


def _shape_of(value: Any) -> Sequence[int]:
    shape: Sequence[int] = value.shape() if isinstance(value, ort_c.OrtValue) else np.shape(value)
    return shape


def as_ort_value(value: TensorValue) -> Any:
    """Wrap a contiguous array without copying it; an ``OrtValue`` stays as it is. The array must outlive the result."""
    if isinstance(value, np.ndarray):
        if value.dtype in SMALL_DTYPES:
            return small_ort_value(value)
        return ort_c.OrtValue.ortvalue_from_numpy(value, processor())
    return value


def as_array(value: TensorValue) -> np.ndarray:
    """View an ``OrtValue`` as an array, without copying it if numpy has its type; an array stays as it is."""
    if isinstance(value, np.ndarray):
        return value
    dtype = SMALL_TYPES.get(value.data_type())
    if dtype is None:
        shared: np.ndarray = value.numpy()
        return shared
    return small_array(value, dtype)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of ONNX Runtime, not an array or another object of Python."""
    return isinstance(value, ort_c.OrtValue)


def _own_array(value: TensorValue) -> np.ndarray:
    """Return the array of a result; it keeps the memory that it lies in."""
    array = as_array(value)
    return array.copy() if value.data_type() in SMALL_TYPES else array


def runs_as_array(spec: TensorSpec) -> bool:
    """Return whether ONNX Runtime's Python binding can share a value's memory with numpy."""
    return spec.dtype is not None and spec.dtype in PLAIN_TYPES


def _failure(error: Exception) -> ExecutionError:
    """Return the error of a run that failed."""
    text = f"onnxruntime: {clean_message(error)}"
    failure = MemoryLimitError(text) if is_refusal(str(error)) else ExecutionError(text)
    if named := re.search(r"while running (\w+ node\. Name:'[^']*')", text):
        failure.node = named[1]
    return failure


def clean_message(error: Exception) -> str:
    """Return ONNX Runtime's message without source paths, function names and its own prefix."""
    text = str(error).split("Stacktrace:")[0]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"Load model from .*? failed:\s*", "", text)
    text = re.sub(r"/\S+\.(?:cc|h):\d+ [^\n]*?\) (?:const )?", "", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:500] or type(error).__name__
