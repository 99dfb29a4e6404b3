"""The result of a compilation."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from trtnode.engines.artifact.checksum import stamp_checksum
from trtnode.engines.artifact.files import write_model
from trtnode.engines.artifact.json_fields import MapOf, misfit
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.partitioner.compiled.stripping import strip_fallback
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.wording import counted

if TYPE_CHECKING:
    from trtnode.partitioner.cut.report import (
        Report,  # which imports the whole partitioner, and who opens a compiled file needs none
    )

SHAPES = "trtnode.shapes"
"""Property of a file whose engines nobody has run: the shapes to run them on, as a list of profiles in JSON."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompiledModel:
    """Outcome of a compilation.

    Attributes:
        model: With TrtNodes; the source itself, or rewritten, where every node runs natively.
        report: The place of each node, and the reason.
        engine: Name of the backend, or ``native``.
        precision_effective: The precision that the engines compute in.
        engines_built: Number of engines that were built now.
        engines_cached: Number of engines from the cache.
        engine_bytes: Size of all engines.
        native_fallback: True if ONNX Runtime runs the model where an engine can't, with ``reference_nodes`` or without.
        reference_nodes: Operators of nodes that neither ONNX Runtime nor an engine has a kernel for.
        rewritten: True if every node runs natively, and some were rewritten to run faster.
        place: Holds files that ``model`` names, until it is saved.
    """

    model: onnx.ModelProto
    report: Report
    engine: str
    precision_effective: str
    engines_built: int
    engines_cached: int
    engine_bytes: int
    native_fallback: bool = True
    reference_nodes: tuple[str, ...] = ()
    rewritten: bool = False
    place: TemporaryFolder | None = None

    def __repr__(self) -> str:
        engines = f"{counted(len(self.report.segments), 'engine')} of {self.engine} in {self.precision_effective}, "
        native = counted(len(self.report.native), "native node")
        return f"<CompiledModel of {self.report.model}: {engines if self.engine_bytes else ''}{native}>"

    def without_fallback(self) -> CompiledModel:
        """Return the same model for its engines alone: without the nodes and weights that they replace."""
        without_replaced_nodes(self.model)
        return dataclasses.replace(self, native_fallback=False)

    def answer_nan_by(self, answer: str) -> None:
        """Say in the file who answers inputs with NaN or infinity unless its user decides: native or engine."""
        _set_property(self.model, NAN, answer)

    def save(self, path: pathlib.Path, *, flush: bool = True) -> None:
        """Write the model, with sidecars where it is too large for one file.

        Args:
            path: The file.
            flush: As of ``write_atomically``.

        Raises:
            OutputFileError: A file can't be written.
        """
        stamp_checksum(self.model, path)
        write_model(self.model, path, flush=flush)


def without_replaced_nodes(model: onnx.ModelProto) -> None:
    """Leave only engines where there are some, in place: the nodes and weights that they replace go."""
    strip_fallback(model)
    _set_property(model, NATIVE_FALLBACK, "none")


def _set_property(model: onnx.ModelProto, key: str, value: str) -> None:
    kept = [entry for entry in model.metadata_props if entry.key != key]
    del model.metadata_props[:]
    model.metadata_props.extend((*kept, onnx.StringStringEntryProto(key=key, value=value)))


NATIVE_FALLBACK = "trtnode.native_fallback"
"""Key of a model's property. It says ``none`` where only engines run the model, and ``reference`` where ONNX Runtime
runs it together with onnx.reference."""

REFERENCE_NODES = "trtnode.reference"
"""Key of a model's property that lists the nodes that ONNX Runtime has no kernel for, and onnx.reference runs: a JSON
object with the operator of each, by the name of its first result. Engines may run some of them."""


NAN = "trtnode.nan"
"""Key of a model's property. It says ``engine`` where engines also answer requests with NaN or infinity."""


def answers_nan_natively(model: ir.Model) -> bool:
    """Return whether requests with NaN or infinity in their inputs are answered natively, as the file says."""
    return model.metadata_props.get(NAN) != "engine"


def has_native_fallback(model: ir.Model) -> bool:
    """Return whether something else than engines runs a model."""
    return model.metadata_props.get(NATIVE_FALLBACK) != "none"


REPORT = "trtnode.report"
"""The property with the report, as JSON."""
_REPORT_FORM = {
    "model": str,
    "engine": str,
    "nodes": int,
    "native": [{"node": str, "code": frozenset(ReasonCode), "detail": str}],
    "tuning?": {
        "chosen": str,
        "candidates": [{"name": str, "p50_ms": float, "segments": [str]}],
        "confidence?": str,
        "border?": {"elements": int, "shapes": MapOf([int]), "gain": float},
    },
    "precision?": MapOf(object),
    "memory?": {"weight_bytes": int, "engine_bytes": (int, None), "memory_pattern": bool},
    "sizes?": MapOf([(int, str, None)]),
}
"""Of the parts of a report that are read again."""


def embedded_report(model: ir.Model) -> dict[str, Any] | None:
    """Return the report in a compiled file; None where there is none.

    Raises:
        ValueError: It can't be read.
    """
    if REPORT not in model.metadata_props:
        return None
    try:
        report: dict[str, Any] = json.loads(model.metadata_props[REPORT])
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if problem := misfit(report, _REPORT_FORM):
        raise ValueError(problem)
    return report


def listed_reference_nodes(model: ir.Model) -> dict[str, str]:
    """Return what the file of a model lists under ``REFERENCE_NODES``; empty if it can't be read."""
    try:
        nodes = json.loads(model.metadata_props.get(REFERENCE_NODES, "{}"))
    except (ValueError, RecursionError):
        return {}
    return {name: str(operator) for name, operator in nodes.items()} if isinstance(nodes, dict) else {}
