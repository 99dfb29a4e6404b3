"""A model to time with rewrites and without: its files, kept in a folder of its own."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping

import numpy as np

from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.inputs.samples import Feeds

OPENVINO = "openvino"
PLAIN_LIBRARIES: Mapping[str, str] = {NATIVE: "onnxruntime", OPENVINO: "OpenVINO"}
"""The libraries timed beside each engine."""

DESCRIPTION, FIGURES, REQUEST = "subject.json", "figures.json", "request.npz"
WITHOUT, WITH = "without", "with"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model, prepared with rewrites and without for one engine.

    Attributes:
        part: Part of the run.
        name: Of the model.
        engine: That runs it.
        source: The model's file.
        compiled: True if the files without and with rewrites are compiled; false for plain models, which the plain
            library runs.
        rules: Number of places by rule; without any, there is nothing to time.
        expected: True if these rules are applied for this engine on this processor.
        bar: Least gain; None where the part has one for all.
    """

    part: str
    name: str
    engine: str
    source: str
    compiled: bool
    rules: Mapping[str, int]
    expected: bool = True
    bar: float | None = None

    def folder(self, root: pathlib.Path) -> pathlib.Path:
        """Return the folder of its files."""
        return root / self.part / re.sub(r"\W+", "_", self.name) / self.engine


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of a subject.

    Attributes:
        p50_ms: Median latency by candidate: without rewrites, with them, and the plain library.
        gain: Time without rewrites over that with them, a median over rounds.
        low: Lower end of its 95 % bootstrap interval.
        high: Upper end.
        error: Largest difference with rewrites, over the largest element of the output.
    """

    p50_ms: Mapping[str, float]
    gain: float
    low: float
    high: float
    error: float


def keep_subject(folder: pathlib.Path, subject: Subject, feeds: Feeds) -> None:
    """Write a subject and a request; it counts as prepared from then on."""
    arrays = {name: a.astype(np.str_) if a.dtype == object else a for name, a in feeds.items()}
    np.savez(folder / REQUEST, allow_pickle=False, **dict(arrays))
    write_atomically(folder / DESCRIPTION, json.dumps(dataclasses.asdict(subject), indent=1).encode())


def kept_subjects(root: pathlib.Path, part: str) -> list[Subject]:
    """Return the prepared subjects of a part, in the order of their folders."""
    files = sorted((root / part).rglob(DESCRIPTION))
    return [Subject(**json.loads(file.read_text("utf-8"))) for file in files]


def request_of(folder: pathlib.Path) -> Feeds:
    """Return a subject's request."""
    with np.load(folder / REQUEST, allow_pickle=False) as arrays:
        return {name: a.astype(object) if (a := arrays[name]).dtype.kind == "U" else a for name in arrays.files}


def keep_figures(folder: pathlib.Path, figures: Figures) -> None:
    """Write what was measured."""
    write_atomically(folder / FIGURES, json.dumps(dataclasses.asdict(figures), indent=1).encode())


def kept_figures(folder: pathlib.Path) -> Figures | None:
    """Return what was measured; None if nothing was."""
    file = folder / FIGURES
    return Figures(**json.loads(file.read_text("utf-8"))) if file.exists() else None
