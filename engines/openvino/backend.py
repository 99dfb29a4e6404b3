"""The backend of OpenVINO's CPU plugin, for machines without a GPU."""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.artifact.envelope import INDICES, Device, Envelope
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.cpu_features import has_short_sums, kernels_chosen_by, leaves_bfloat16, usable_flags
from trtnode.engines.backends.protocols import Backend, Origin, PrecisionSupport
from trtnode.engines.errors import BuildError, EngineRejectedError
from trtnode.engines.openvino import labels
from trtnode.engines.openvino.byte_arithmetic import compute_bytes_in_32_bits
from trtnode.engines.openvino.engine import OpenVinoEngine, check_bindings, first_line
from trtnode.engines.openvino.indices import CLAMPED_OPS, bounds_of, clamp_indices, index_options
from trtnode.engines.openvino.library import ov
from trtnode.engines.openvino.operators import TRUSTED_OPS
from trtnode.partitioner.cut.labels import SUPPORTED, ReasonCode, Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Node

logger = logging.getLogger(__name__)

DEVICE = "CPU"
HEADER_BYTES = 512
WITHOUT_DOT_PRODUCTS = " without 8-bit dot products"
"""Follows the instruction set in the name of a device."""

INFERENCE_PRECISIONS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
"""Values of the property that fixes the precision. OpenVINO's own choice is bfloat16 where the processor has it."""

CAPABILITIES = {"FP16": "fp16", "BF16": "bf16", "INT8": "int8"}
"""OpenVINO's names for precisions that the processor computes."""


class OpenVinoBackend(Backend):
    """Builds engines with OpenVINO's CPU plugin."""

    name = "openvino"
    trusted_ops = TRUSTED_OPS
    reads_links = True
    profiling_options: Mapping[str, str] = {"PERF_COUNT": "YES"}
    clamped_ops = CLAMPED_OPS

    def version(self) -> str:
        """Return the full version of the openvino package."""
        return str(ov.get_version())

    @functools.cache  # noqa: B019  (one backend a process)
    def device(self) -> Device:
        """Return the instruction set as OpenVINO names it in each exported engine, and the processor's name.

        The name of AVX2 says nothing about 8-bit dot products, and engines made with them would saturate without.
        """
        lacking = WITHOUT_DOT_PRODUCTS if has_short_sums(usable_flags()) else ""
        return Device(features=_instruction_set() + lacking, name=str(_core().get_property(DEVICE, "FULL_DEVICE_NAME")))

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """Label a node by the tables; see ``trtnode.engines.openvino.labels``."""
        return labels.label(node)

    def fingerprint(self, options: BuildOptions) -> str:
        """Return the release and the instruction sets. OpenVINO takes long to import, and longer to name its own."""
        return f"{importlib.metadata.version('openvino')} {kernels_chosen_by() or self.device().features}"

    def check_support(self, model: pathlib.Path) -> Verdict:
        """Convert a model and query the CPU plugin for each of its operations."""
        try:
            source = _core().read_model(str(model))
            taken = _core().query_model(source, DEVICE)
        except Exception as error:  # the library raises RuntimeError for nearly everything, but not only that
            return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO: {first_line(error)}")
        refused = [op.get_type_name() for op in source.get_ops() if op.get_friendly_name() not in taken]
        if not refused:
            return SUPPORTED
        return Verdict(ReasonCode.UNSUPPORTED_OP, f"OpenVINO's CPU plugin has no {refused[0]}.")

    def precision_support(self, options: BuildOptions | None = None) -> PrecisionSupport:
        """Ask compiled models: without float16 in hardware, they compute in bfloat16 or float32 instead."""
        return self._support

    @functools.cached_property
    def _support(self) -> PrecisionSupport:
        if leaves_bfloat16():
            told, accelerated = dict.fromkeys(INFERENCE_PRECISIONS, "fp32"), frozenset({"int8"})
        else:
            told = {precision: _inference_precision(hint) for precision, hint in INFERENCE_PRECISIONS.items()}
            capabilities = _core().get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
            accelerated = frozenset(CAPABILITIES[name] for name in capabilities if name in CAPABILITIES)
        return PrecisionSupport(
            effective={**told, "int8": "int8"},
            accelerated=accelerated,
            boundary_precisions=frozenset({"fp16"} if told["fp16"] == "fp16" else ()),
        )

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """Return OpenVINO properties for these options. An engine doesn't keep them, so they are set again at load."""
        return {
            "INFERENCE_PRECISION_HINT": INFERENCE_PRECISIONS[options.precision],
            "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY",
        }

    def index_options(self, nodes: Sequence[Node], inputs: Sequence[ir.Value]) -> dict[str, str]:
        """Return the option that holds the ranges of inputs that are indices."""
        return index_options(nodes, inputs)

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Compile an ONNX file for this processor and export the result.

        Raises:
            BuildError: OpenVINO refuses the model, or changed the number or types of its inputs or outputs.
        """
        try:
            source = _core().read_model(str(model))
            compute_bytes_in_32_bits(source)
            clamp_indices(source)
            compiled = _core().compile_model(source, DEVICE, self.build_properties(options))
            exported = compiled.export_model()
        except Exception as error:  # the library raises RuntimeError for nearly everything, but not only that
            raise BuildError(first_line(error)) from error
        engine: bytes = exported.getvalue()  # without a copy
        return engine

    def load(
        self,
        engine: bytes | memoryview,
        envelope: Envelope,
        *,
        threads: int | None = None,
        instances: int = 1,
        shares_cores: bool = True,
        origin: Origin | None = None,
    ) -> OpenVinoEngine:
        """Import engine bytes.

        Args:
            engine: As exported.
            envelope: Already verified.
            threads: Threads of one execution; None takes all cores, for one execution at a time.
            instances: Executions at the same time, as far as there are cores for their threads.
            shares_cores: Not used: its idle threads sleep.
            origin: Not used: engines hold their weights.

        Raises:
            EngineRejectedError: OpenVINO refuses the bytes, or their bindings are not the envelope's.
        """
        bounds = bounds_of(envelope.options, envelope.inputs)
        properties: dict[str, Any] = {k: v for k, v in envelope.options.items() if k != INDICES}
        if threads is not None:
            cores = len(os.sched_getaffinity(0))
            streams = max(1, min(instances, cores // threads))
            properties["INFERENCE_NUM_THREADS"] = threads * streams
            properties["NUM_STREAMS"] = str(streams)
            if threads < cores:
                # OpenVINO pins threads to the first cores, and so would every other process that shares the machine.
                properties["ENABLE_CPU_PINNING"] = False
        # The engine aliases the memory that it is imported from, which nobody else may change or let go.
        blob = np.frombuffer(engine, dtype=np.uint8).copy()
        try:
            compiled = _core().import_model(ov.Tensor(blob, shared_memory=True), DEVICE, properties)
        except Exception as error:  # a damaged header raises anything, UnicodeDecodeError included
            raise EngineRejectedError("OpenVINO", first_line(error)) from error
        check_bindings("inputs", compiled.inputs, envelope.inputs)
        check_bindings("outputs", compiled.outputs, envelope.outputs)
        return OpenVinoEngine(compiled, envelope.inputs, envelope.outputs, blob, bounds)


@functools.cache
def _core() -> ov.Core:
    return ov.Core()


def _compile_probe(**properties: str) -> ov.CompiledModel:
    parameter = ov.op.Parameter(ov.Type.f32, ov.PartialShape([1]))
    tiny = ov.Model([parameter.output(0)], [parameter], "probe")
    return _core().compile_model(tiny, DEVICE, properties)


def _inference_precision(hint: str) -> str:
    """Return the precision that a model with a hint computes in, by this program's name."""
    told = _compile_probe(INFERENCE_PRECISION_HINT=hint).get_property("INFERENCE_PRECISION_HINT")
    return {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}[told.get_type_name()]


@functools.cache
def _instruction_set() -> str:
    """Return the ``isa`` field of an exported engine's header, which OpenVINO itself compares at import."""
    header = bytes(_compile_probe().export_model().getbuffer()[:HEADER_BYTES])
    start = header.find(b"isa=")
    end = min((i for i in (header.find(b"\x00", start), header.find(b";", start)) if i > 0), default=-1)
    return header[start + 4 : end].rstrip(b"0123456789 ").decode("ascii", "replace") if start >= 0 else "unknown"
