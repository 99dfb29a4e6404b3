"""OpenVINO's CPU plugin: describes the processor, builds engines and loads them. To import it takes half a second."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from trtnode.engines.artifact.envelope import INDICES, SATURATED, Device, Envelope
from trtnode.engines.backends.cpu_features import has_short_sums, leaves_bfloat16, usable_flags
from trtnode.engines.backends.protocols import LoadOptions, PrecisionSupport
from trtnode.engines.cores import quota_threads, usable_cores
from trtnode.engines.errors import BuildError, EngineRejectedError
from trtnode.engines.openvino.engine import OpenVinoEngine, check_bindings, first_line
from trtnode.engines.openvino.graph_changes import (
    clamp_indices,
    compute_bytes_in_32_bits,
    part_outputs_from_inputs,
    round_casts,
)
from trtnode.engines.openvino.indices import bounds_of
from trtnode.engines.openvino.library import KEPT_IN_INT8, KEPT_KERNELS, ov
from trtnode.engines.openvino.wide_integers import saturated_of
from trtnode.engines.system_limits import raise_limit
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict

DEVICE = "CPU"
HEADER_BYTES = 512
WITHOUT_DOT_PRODUCTS = " without 8-bit dot products"
"""Follows the instruction set in the name of a device."""

CAPABILITIES = {"FP16": "fp16", "BF16": "bf16", "INT8": "int8"}
"""OpenVINO's names for precisions that the processor computes."""


class CpuPlugin:
    """The part of the backend that needs the library, with the arguments and errors of ``Backend``'s methods."""

    def __init__(self) -> None:
        self._core = ov.Core()

    def version(self) -> str:
        """Return the full version of the openvino package."""
        return str(ov.get_version())

    @functools.cached_property
    def device(self) -> Device:
        """The instruction set as OpenVINO names it in each exported engine, and the processor's name.

        The name of AVX2 says nothing about 8-bit dot products, and engines made with them would saturate without.
        """
        lacking = WITHOUT_DOT_PRODUCTS if has_short_sums(usable_flags()) else ""
        name = self._core.get_property(DEVICE, "FULL_DEVICE_NAME")
        return Device(features=self._instruction_set() + lacking, name=str(name))

    def check_support(self, model: pathlib.Path) -> Verdict:
        """Convert a model and query the plugin for each of its operations."""
        try:
            source = self._core.read_model(str(model))
            taken = self._core.query_model(source, DEVICE)
        except Exception as error:  # the library raises RuntimeError for nearly everything, but not only that
            raise_limit(error)
            return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO: {first_line(error)}")
        refused = [op.get_type_name() for op in source.get_ops() if op.get_friendly_name() not in taken]
        if not refused:
            return SUPPORTED
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO's CPU plugin has no {refused[0]}.")

    def precision_support(self, hints: Mapping[str, str]) -> PrecisionSupport:
        """Ask compiled models: without float16 in hardware, they compute in bfloat16 or float32 instead.

        Args:
            hints: The property that asks for a precision, by the precision.
        """
        if leaves_bfloat16():
            told, accelerated = dict.fromkeys(hints, "fp32"), frozenset({"int8"})
        else:
            told = {precision: self._inference_precision(hint) for precision, hint in hints.items()}
            capabilities = self._core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
            accelerated = frozenset(CAPABILITIES[name] for name in capabilities if name in CAPABILITIES)
        return PrecisionSupport(effective={**told, "int8": "int8"}, accelerated=accelerated)

    def build(self, model: pathlib.Path, properties: Mapping[str, str]) -> bytes:
        """Compile an ONNX file for this processor and export the result."""
        try:
            source = self._core.read_model(str(model))
            compute_bytes_in_32_bits(source)
            clamp_indices(source)
            if properties["INFERENCE_PRECISION_HINT"] == "f32":  # others round on their own
                round_casts(source)
            compiled = self._core.compile_model(source, DEVICE, dict(properties))
            if part_outputs_from_inputs(source, compiled):
                compiled = self._core.compile_model(source, DEVICE, dict(properties))
            exported = compiled.export_model()
        except Exception as error:  # the library raises RuntimeError for nearly everything, but not only that
            raise_limit(error)
            raise BuildError(first_line(error)) from error
        engine: bytes = exported.getvalue()  # without a copy
        return engine

    def load(self, engine: bytes | memoryview, envelope: Envelope, options: LoadOptions) -> OpenVinoEngine:
        """Import engine bytes."""
        bounds = bounds_of(envelope.options, envelope.inputs)
        saturated = saturated_of(envelope.options)
        properties: dict[str, Any] = {k: v for k, v in envelope.options.items() if k not in (INDICES, SATURATED)}
        is_int8 = envelope.precision_effective == "int8"
        properties["CPU_RUNTIME_CACHE_CAPACITY"] = KEPT_IN_INT8 if is_int8 else KEPT_KERNELS
        # Pinned, threads wait for a core that another process has; alone, they gain nothing by it.
        properties["ENABLE_CPU_PINNING"] = False
        if (threads := options.threads or quota_threads()) is not None:
            streams = max(1, min(options.instances, usable_cores().count // threads))
            properties["INFERENCE_NUM_THREADS"] = threads * streams
            properties["NUM_STREAMS"] = str(streams)
        # The engine aliases the memory that it is imported from, which nobody else may change or let go.
        blob = np.frombuffer(engine, dtype=np.uint8)
        blob = blob if blob.flags.writeable else blob.copy()
        try:
            compiled = self._core.import_model(ov.Tensor(blob, shared_memory=True), DEVICE, properties)
        except Exception as error:  # a damaged header raises anything, UnicodeDecodeError included
            raise_limit(error)
            raise EngineRejectedError("OpenVINO", first_line(error)) from error
        check_bindings("inputs", compiled.inputs, envelope.inputs)
        check_bindings("outputs", compiled.outputs, envelope.outputs)
        return OpenVinoEngine(compiled, envelope.inputs, envelope.outputs, blob, bounds, saturated)

    def _compile_probe(self, **properties: str) -> ov.CompiledModel:
        parameter = ov.op.Parameter(ov.Type.f32, ov.PartialShape([1]))
        tiny = ov.Model([parameter.output(0)], [parameter], "probe")
        return self._core.compile_model(tiny, DEVICE, properties)

    def _inference_precision(self, hint: str) -> str:
        """Return the precision that a model with a hint computes in, by this program's name."""
        told = self._compile_probe(INFERENCE_PRECISION_HINT=hint).get_property("INFERENCE_PRECISION_HINT")
        return {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}[told.get_type_name()]

    def _instruction_set(self) -> str:
        """Return the ``isa`` field of an exported engine's header, which OpenVINO itself compares at import."""
        header = bytes(self._compile_probe().export_model().getbuffer()[:HEADER_BYTES])
        start = header.find(b"isa=")
        end = min((i for i in (header.find(b"\x00", start), header.find(b";", start)) if i > 0), default=-1)
        return header[start + 4 : end].rstrip(b"0123456789 ").decode("ascii", "replace") if start >= 0 else "unknown"
