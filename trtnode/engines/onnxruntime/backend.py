"""ONNX Runtime in place of an engine library: it runs the models that engines are built from, as engines would run.

Precisions of engines that can't run on a machine are evaluated with it. No user can choose it. It computes float16 in
float32 where it has no kernel, and then rounds less often than an engine may.
"""

from __future__ import annotations

import pathlib

from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.names import PRECISION_NAMES, TYPED_ONNX
from trtnode.engines.backends.protocols import DEFAULTS, LoadOptions, PrecisionSupport
from trtnode.engines.backends.reference import ReferenceBackend, ReferenceEngine
from trtnode.engines.errors import EngineRejectedError
from trtnode.engines.onnxruntime.limits import native_version
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.partitioner.model.external_data import read_self_contained


class OnnxRuntimeBackend(ReferenceBackend):
    """Runs segments in ONNX Runtime. Like the reference's, its engine bytes are the segment's ONNX model."""

    name = "onnxruntime"

    def version(self) -> str:
        """Return the version of ONNX Runtime."""
        return native_version()

    def load(self, engine: bytes | memoryview, envelope: Envelope, options: LoadOptions = DEFAULTS) -> ReferenceEngine:
        """Load the model.

        Raises:
            EngineRejectedError: ONNX Runtime refuses it.
        """
        try:
            model = read_self_contained(engine)
            # Optimized, some recurrent float16 models crash ONNX Runtime 1.31.
            session = NativeSession(model, threads=options.threads, optimize=False, name="a rewritten segment")
        except Exception as error:  # damaged bytes raise protobuf's own error
            raise EngineRejectedError("ONNX Runtime", str(error)) from error
        outputs = [spec.name for spec in envelope.outputs]
        return ReferenceEngine(lambda feeds: session.run(feeds, outputs), envelope.inputs, envelope.outputs)


class TypedOnnxBackend(OnnxRuntimeBackend):
    """Stands for whatever library will build a typed model: its engine bytes are the model in its precision."""

    name = TYPED_ONNX
    reads_links = True

    def precision_support(self, options: BuildOptions | None = None) -> PrecisionSupport:
        """Return all precisions, each in the types of the model. Beside integers, floats in float16 cost the least."""
        effective: dict[str, str] = {precision: precision for precision in PRECISION_NAMES}
        return PrecisionSupport(effective=effective, typed=frozenset({"fp16", "bf16"}), accelerated=frozenset({"fp16"}))

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        """Return the model, which was written in its precision."""
        return model.read_bytes()
