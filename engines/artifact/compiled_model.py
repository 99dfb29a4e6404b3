"""The result of a compilation."""

from __future__ import annotations

import dataclasses
import pathlib

import onnx

from engines.artifact.checksum import stamp_checksum
from engines.artifact.files import write_model
from engines.errors import EngineError
from partitioner import Report
from partitioner.compiled.stripping import strip_fallback

SHAPES = "trtnode.shapes"
"""Property of a file whose engines nobody has run: the shapes to run them on, as a list of profiles in JSON."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModel:
    """Outcome of a compilation.

    Attributes:
        model: With TrtNodes; the source itself where every node runs natively.
        report: The place of each node, and the reason.
        engine: Name of the backend, or ``native``.
        precision_effective: The precision that the engines compute in.
        engines_built: Number of engines that were built now.
        engines_cached: Number of engines from the cache.
        engine_bytes: Size of all engines.
        engines_stripped: Number of engines without weights, which take those of the nodes that they replace.
        native_fallback: True if ONNX Runtime runs the model where an engine can't.
    """

    model: onnx.ModelProto
    report: Report
    engine: str
    precision_effective: str
    engines_built: int
    engines_cached: int
    engine_bytes: int
    engines_stripped: int = 0
    native_fallback: bool = True

    def without_fallback(self) -> CompiledModel:
        """Return the same model for its engines alone: without the nodes and weights that they replace.

        Raises:
            EngineError: Some engines need those weights.
        """
        if self.engines_stripped:
            raise EngineError(
                "Engines without weights need those of the model. Build them with weights, or keep these."
            )
        strip_fallback(self.model)
        self.model.metadata_props.append(onnx.StringStringEntryProto(key=NATIVE_FALLBACK, value="none"))
        return dataclasses.replace(self, native_fallback=False)

    def save(self, path: pathlib.Path) -> None:
        """Write the model, with sidecars where it is too large for one file.

        Raises:
            OutputFileError: A file can't be written.
        """
        stamp_checksum(self.model, path)
        write_model(self.model, path)


NATIVE_FALLBACK = "trtnode.native_fallback"
"""Key of a model's property that says ``none`` where ONNX Runtime can't run the model."""
