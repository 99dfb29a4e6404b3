"""OpenVINO on a CPU: the engine where no GPU is."""

from __future__ import annotations

import datetime
import functools
import logging
import pathlib
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

# OpenVINO reports usage over the network when this optional package is importable, and has no switch for it.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino as ov
from openvino._pyopenvino import InferRequest as RawInferRequest

from engines import openvino_labels
from engines.base import Buffer, Origin, PrecisionSupport
from engines.envelope import Device, Envelope
from engines.errors import BuildError, EngineRejectedError, ExecutionError, OutOfRangeError
from engines.layer_times import LayerTime, precision_name
from engines.options import BuildOptions
from partitioner import SUPPORTED, Allowance, Node, ReasonCode, TensorSpec, Verdict

logger = logging.getLogger(__name__)

DEVICE = "CPU"
HEADER_BYTES = 512
INFERENCE_PRECISIONS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
"""The property that keeps OpenVINO from its own choice, which is bfloat16 where the processor has it."""

CAPABILITIES = {"FP16": "fp16", "BF16": "bf16", "INT8": "int8"}
"""What OpenVINO calls a precision that the processor computes."""


class OpenVinoBackend:
    """Builds engines with OpenVINO's CPU plugin."""

    name = "openvino"
    trusted_ops = openvino_labels.TRUSTED_OPS
    needs_shapes = False
    profiling_options: Mapping[str, str] = {"PERF_COUNT": "YES"}

    def version(self) -> str:
        """Full version of the openvino package."""
        return str(ov.get_version())

    @functools.cache  # noqa: B019  (one backend a process)
    def device(self) -> Device:
        """The instruction set as OpenVINO names it in each engine it exports, and the processor's name."""
        return Device(features=_instruction_set(), name=str(_core().get_property(DEVICE, "FULL_DEVICE_NAME")))

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """See ``engines.openvino_labels``."""
        return openvino_labels.label(node)

    def missing(self) -> str | None:
        """Nothing: OpenVINO comes with this project and needs no device."""
        return None

    def refusal(self, model: pathlib.Path) -> Verdict:
        """Convert a model and query the CPU plugin for each of its operations."""
        try:
            source = _core().read_model(str(model))
            taken = _core().query_model(source, DEVICE)
        except Exception as error:  # the library raises RuntimeError for nearly everything, but not only that
            return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO: {_first_line(error)}")
        refused = [op.get_type_name() for op in source.get_ops() if op.get_friendly_name() not in taken]
        if not refused:
            return SUPPORTED
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO's CPU plugin has no {refused[0]}.")

    @functools.cache  # noqa: B019  (one backend a process)
    def precision_support(self) -> PrecisionSupport:
        """What a compiled model says that it computes in: without float16 in hardware, bfloat16 or float32 instead."""
        told = {precision: _inference_precision(hint) for precision, hint in INFERENCE_PRECISIONS.items()}
        capabilities = _core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
        return PrecisionSupport(
            effective={**told, "int8": "int8"},
            accelerated=frozenset(CAPABILITIES[name] for name in capabilities if name in CAPABILITIES),
            carried=frozenset({"fp16"} if told["fp16"] == "fp16" else ()),
        )

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """OpenVINO properties for these options. An engine doesn't keep them: they are set again at load."""
        return {
            "INFERENCE_PRECISION_HINT": INFERENCE_PRECISIONS[options.precision],
            "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY",
        }

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Compile an ONNX file for this processor and export the result.

        Raises:
            BuildError: OpenVINO refuses the model, or changed the number or types of its inputs or outputs.
        """
        try:
            source = _core().read_model(str(model))
            compiled = _core().compile_model(source, DEVICE, self.build_properties(options))
            exported = compiled.export_model()
        except Exception as error:  # the library raises RuntimeError for nearly everything, but not only that
            raise BuildError(_first_line(error)) from error
        return bytes(exported.getbuffer())

    def load(
        self, engine: bytes, envelope: Envelope, *, threads: int | None = None, origin: Origin | None = None
    ) -> OpenVinoEngine:
        """Import engine bytes.

        Args:
            engine: As exported.
            envelope: Already verified.
            threads: Number of threads; None leaves it to the library.
            origin: Not used: engines hold their weights.

        Raises:
            EngineRejectedError: OpenVINO refuses the bytes, or their bindings are not the envelope's.
        """
        properties: dict[str, Any] = dict(envelope.options)
        if threads is not None:
            properties["INFERENCE_NUM_THREADS"] = threads
        # Importing from a shared tensor saves a copy, but aliases memory that the engine does not keep alive.
        blob = np.frombuffer(engine, dtype=np.uint8).copy()
        try:
            compiled = _core().import_model(ov.Tensor(blob, shared_memory=True), DEVICE, properties)
        except Exception as error:  # a damaged header raises anything, UnicodeDecodeError included
            raise EngineRejectedError("OpenVINO", _first_line(error)) from error
        _check_bindings("inputs", compiled.inputs, envelope.inputs)
        _check_bindings("outputs", compiled.outputs, envelope.outputs)
        return OpenVinoEngine(compiled, envelope.inputs, envelope.outputs, blob)


class OpenVinoEngine:
    """One inference request of a compiled model."""

    def __init__(
        self, compiled: ov.CompiledModel, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], blob: Buffer
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._compiled = compiled
        self._blob = blob
        self._request = compiled.create_infer_request()
        # The Python class's own infer() wraps every output in an ordered dictionary; its base class does not.
        self._infer = functools.partial(
            RawInferRequest.infer, self._request, {}, share_outputs=True, decode_strings=False
        )
        self._wide = [index for index, spec in enumerate(inputs) if spec.dtype == ir.DataType.INT64]
        self._wide_buffers: list[Buffer] = []
        self._bound_inputs: list[Buffer | None] = [None] * len(inputs)
        self._bound_outputs: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Point the request at buffers. A buffer that is bound already costs nothing.

        Raises:
            ExecutionError: A buffer does not fit what the engine was built for.
        """
        try:
            for index, buffer in enumerate(inputs):
                if buffer is not self._bound_inputs[index]:
                    self._request.set_input_tensor(index, ov.Tensor(buffer, shared_memory=True))
                    self._bound_inputs[index] = buffer
            for index, buffer in enumerate(outputs or ()):
                self._request.set_output_tensor(index, ov.Tensor(buffer, shared_memory=True))
        except RuntimeError as error:
            raise ExecutionError(f"OpenVINO: {_first_line(error)}") from error
        self._bound_outputs = outputs
        self._wide_buffers = [inputs[index] for index in self._wide]

    def run(self) -> Sequence[Buffer]:
        """Run on the bound buffers.

        Raises:
            OutOfRangeError: An int64 input holds a value beyond 32 bits, which OpenVINO would cut off.
            ExecutionError: OpenVINO failed.
        """
        for buffer in self._wide_buffers:
            if not np.array_equal(buffer.astype(np.int32), buffer):
                raise OutOfRangeError("int64_range", "An int64 input holds a value that does not fit into 32 bits.")
        try:
            self._infer()
        except RuntimeError as error:
            raise ExecutionError(f"OpenVINO: {_first_line(error)}") from error
        if self._bound_outputs is not None:
            return self._bound_outputs
        return [self._request.get_output_tensor(index).data for index in range(len(self.outputs))]

    def layer_times(self) -> list[LayerTime]:
        """Times of the last run; none where the engine was loaded without ``PERF_COUNT``."""
        executed = [i for i in self._request.get_profiling_info() if i.status == ov.ProfilingInfo.Status.EXECUTED]
        return [_layer_time(info, self._originals.get(info.node_name, "")) for info in executed]

    @functools.cached_property
    def _originals(self) -> dict[str, str]:
        """Names of the layers of the ONNX model that each layer computes, joined by commas."""
        layers = self._compiled.get_runtime_model().get_ordered_ops()
        return {op.get_friendly_name(): op.get_rt_info()["originalLayersNames"].astype(str) for op in layers}

    def fork(self) -> OpenVinoEngine:
        """Another request of the same compiled model."""
        return OpenVinoEngine(self._compiled, self.inputs, self.outputs, self._blob)


def _layer_time(info: Any, originals: str) -> LayerTime:
    kernel, _, precision = info.exec_type.rpartition("_")
    return LayerTime(
        name=info.node_name,
        nodes=tuple(filter(None, originals.split(","))),
        kind=info.node_type,
        precision=precision_name(precision),
        kernel=kernel,
        us=info.real_time / datetime.timedelta(microseconds=1),
    )


@functools.cache
def _core() -> ov.Core:
    return ov.Core()


def _compile_probe(**properties: str) -> ov.CompiledModel:
    parameter = ov.opset13.parameter([1], np.float32)
    tiny = ov.Model([ov.opset13.relu(parameter)], [parameter], "probe")
    return _core().compile_model(tiny, DEVICE, properties)


def _inference_precision(hint: str) -> str:
    """What is computed in where a hint is given, in our words."""
    told = _compile_probe(INFERENCE_PRECISION_HINT=hint).get_property("INFERENCE_PRECISION_HINT")
    return {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}[told.get_type_name()]


@functools.cache
def _instruction_set() -> str:
    """The ``isa`` field of an exported engine's header: what OpenVINO itself compares at import."""
    header = bytes(_compile_probe().export_model().getbuffer()[:HEADER_BYTES])
    start = header.find(b"isa=")
    end = min((i for i in (header.find(b"\x00", start), header.find(b";", start)) if i > 0), default=-1)
    return header[start + 4 : end].rstrip(b"0123456789 ").decode("ascii", "replace") if start >= 0 else "unknown"


def _check_bindings(kind: str, ports: Sequence[Any], specs: Sequence[TensorSpec]) -> None:
    """OpenVINO drops unused inputs and renames others, so bindings are compared by position, count and type."""
    if len(ports) != len(specs):
        raise EngineRejectedError("OpenVINO", f"it has {len(ports)} {kind}, its envelope {len(specs)}.")
    for port, spec in zip(ports, specs, strict=True):
        built = np.dtype(port.get_element_type().to_dtype())
        if spec.dtype is None or built != spec.dtype.numpy():
            raise EngineRejectedError("OpenVINO", f"{kind[:-1]} {spec.name!r} is {built}, not {spec.dtype}.")


HEADINGS = (
    "Exception from src/",
    "Check '",
    "FrontEnd API failed with",
    "Model wasn't fully converted",
    "While validating",
    "Summary:",
)
"""Lines of OpenVINO's messages that say where, not what."""


def _first_line(error: Exception) -> str:
    lines = [line.strip().removeprefix("-- ") for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(HEADINGS) and not line.endswith("with a message:")]
    return (told or lines or [type(error).__name__])[0][:300]
