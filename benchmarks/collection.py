"""Models of a folder, each with the shapes of its stored requests."""

from __future__ import annotations

import dataclasses
import fnmatch
import gzip
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.inputs.shape_profiles import holds_sizes
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.loading import load_model

DESCRIPTION = "case.json"
"""The file beside a model that maps its inputs to stored arrays."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model to measure.

    Attributes:
        name: Its folder and file below the collection.
        model: The file, perhaps packed with gzip.
        description: The file that describes its data; None where there is none.
    """

    name: str
    model: pathlib.Path
    description: pathlib.Path | None = None

    def unpacked(self, folder: pathlib.Path) -> pathlib.Path:
        """Return the model as a plain ONNX file, written into a folder if it is packed."""
        if self.model.suffix != ".gz":
            return self.model
        path = folder / self.model.stem
        path.write_bytes(gzip.decompress(self.model.read_bytes()))
        return path

    def profile(self, model: pathlib.Path) -> Profile:
        """Return the least, first and largest shapes of the stored requests, for inputs whose shapes vary.

        Args:
            model: The unpacked file.

        Raises:
            PartitionError: It is no model.
        """
        requests = [] if self.description is None else json.loads(self.description.read_text("utf-8"))["data"]
        specs = [TensorSpec.of(value) for value in load_model(model).graph.inputs]
        varying = [s for s in specs if s.static_shape is None and not holds_sizes(s) and not s.optional]
        return {s.name: _joined(shapes) for s in varying if (shapes := list(_shapes(requests, s.name)))}


def find_cases(root: pathlib.Path, pattern: str = "*") -> list[Case]:
    """Return the models below a folder: those with a description, or every ONNX file where none has one.

    Args:
        root: The folder.
        pattern: Glob over the names.
    """
    described = sorted(root.rglob(DESCRIPTION))
    files = [_model_of(path) for path in described] or sorted(p for p in root.rglob("*.onnx*") if _is_model(p))
    cases = [
        Case(
            name=str(file.parent.relative_to(root)) if described else str(file.relative_to(root)),
            model=file,
            description=file.with_name(DESCRIPTION) if described else None,
        )
        for file in files
    ]
    return [case for case in cases if fnmatch.fnmatch(case.name, pattern)]


def _model_of(description: pathlib.Path) -> pathlib.Path:
    name: str = json.loads(description.read_text("utf-8")).get("model_file", "model.onnx")
    return description.with_name(name)


def _is_model(path: pathlib.Path) -> bool:
    return path.name.endswith((".onnx", ".onnx.gz"))


def _shapes(requests: Sequence[Mapping[str, Any]], name: str) -> Iterator[tuple[int, ...]]:
    for request in requests:
        entry = request["inputs"].get(name, {})
        if entry.get("kind") == "tensor":
            yield tuple(entry["shape"])


def _joined(shapes: Sequence[tuple[int, ...]]) -> ShapeRange:
    columns = list(zip(*shapes, strict=True))
    return ShapeRange(min=tuple(map(min, columns)), opt=shapes[0], max=tuple(map(max, columns)))
