"""The backend of OpenVINO's CPU plugin, for machines without a GPU. What only labels does not import the library."""

from __future__ import annotations

import functools
import importlib.metadata
import pathlib
import pkgutil
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.cpu_features import kernels_chosen_by
from trtnode.engines.backends.protocols import DEFAULTS, Backend, Engine, LoadOptions, PrecisionSupport
from trtnode.engines.openvino import labels
from trtnode.engines.openvino.indices import CLAMPED_OPS, index_options, may_be_empty
from trtnode.engines.openvino.operators import TRUSTED_OPS
from trtnode.engines.openvino.wide_integers import saturation_options
from trtnode.partitioner.cut.labels import Verdict
from trtnode.partitioner.cut.options import Allowance
from trtnode.partitioner.graph.view import Node

if TYPE_CHECKING:
    from trtnode.engines.openvino.cpu_plugin import CpuPlugin

INFERENCE_PRECISIONS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
"""Values of the property that fixes the precision. OpenVINO's own choice is bfloat16 where the processor has it."""

OLDEST = (2026, 4)
"""The oldest release that works. pip installs older ones where no later wheel fits, as beside an older glibc."""


class OpenVinoBackend(Backend):
    """Builds engines with OpenVINO's CPU plugin."""

    name = "openvino"
    trusted_ops = TRUSTED_OPS
    reads_links = True
    clamped_ops = CLAMPED_OPS

    def unavailable_reason(self) -> str | None:
        """Return that the library is missing, or is a release that doesn't work; None if it works."""
        needed = f"{'.'.join(map(str, OLDEST))} or newer is needed, which on aarch64 needs glibc 2.35."
        version = installed_release()
        if version is None:
            return f"OpenVINO is not installed here: {needed}"
        if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST:
            return None
        return f"OpenVINO {version} is too old: {needed}"

    def version(self) -> str:
        """Return the full version of the openvino package."""
        return self._plugin.version()

    def device(self) -> Device:
        """Return the instruction set as OpenVINO names it in each exported engine, and the processor's name."""
        return self._plugin.device

    def label(self, node: Node, allow: Collection[Allowance] = ()) -> Verdict:
        """Label a node by the tables; see ``trtnode.engines.openvino.labels``."""
        return labels.label(node)

    def fingerprint(self, options: BuildOptions) -> str:
        """Return the release and the instruction sets. OpenVINO takes long to import, and longer to name its own."""
        return f"{installed_release()} {kernels_chosen_by() or self.device().features}"

    def check_support(self, model: pathlib.Path) -> Verdict:
        """Convert a model and query the CPU plugin for each of its operations."""
        return self._plugin.check_support(model)

    def precision_support(self, options: BuildOptions | None = None) -> PrecisionSupport:
        """Ask compiled models: without float16 in hardware, they compute in bfloat16 or float32 instead."""
        return self._support

    @functools.cached_property
    def _support(self) -> PrecisionSupport:
        return self._plugin.precision_support(INFERENCE_PRECISIONS)

    def build_properties(self, options: BuildOptions) -> dict[str, str]:
        """Return OpenVINO properties for these options. An engine doesn't keep them, so they are set again at load."""
        return {
            "INFERENCE_PRECISION_HINT": INFERENCE_PRECISIONS[options.precision],
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",  # else activations beside compressed weights are rounded to int8
            "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY",
        }

    def index_options(self, nodes: Sequence[Node], inputs: Sequence[ir.Value]) -> dict[str, str]:
        """Return the options that hold the ranges of inputs that are indices, and the inputs that may be saturated."""
        return index_options(nodes, inputs) | saturation_options(nodes, inputs)

    def may_be_empty(self, nodes: Sequence[Node], sizes: Collection[str]) -> bool:
        """Return whether no clamp of an index gets an empty range."""
        return may_be_empty(nodes, sizes)

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Compile an ONNX file for this processor and export the result.

        Raises:
            BuildError: OpenVINO refuses the model, or changed the number or types of its inputs or outputs.
        """
        return self._plugin.build(model, self.build_properties(options))

    def load(self, engine: bytes | memoryview, envelope: Envelope, options: LoadOptions = DEFAULTS) -> Engine:
        """Import engine bytes.

        Args:
            engine: As exported.
            envelope: Already verified.
            options: Without threads, an execution takes all cores. Instances run at the same time as far as there are
                cores for their threads. Idle threads sleep, and engines hold their weights, so the rest isn't used.

        Raises:
            EngineRejectedError: OpenVINO refuses the bytes, or their bindings are not the envelope's.
        """
        return self._plugin.load(engine, envelope, options)

    @functools.cached_property
    def _plugin(self) -> CpuPlugin:
        plugin: type[CpuPlugin] = pkgutil.resolve_name("trtnode.engines.openvino.cpu_plugin:CpuPlugin")
        return plugin()


@functools.cache
def installed_release() -> str | None:
    """Return the release of the openvino package, without importing it; None where it isn't installed."""
    try:
        return importlib.metadata.version("openvino")
    except importlib.metadata.PackageNotFoundError:
        return None
