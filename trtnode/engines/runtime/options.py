"""Options of a loaded model, which all its engines and sessions share."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from trtnode.engines.artifact.trust import Trust
from trtnode.engines.inputs.samples import Runner
from trtnode.engines.runtime.known_engines import KnownEngines
from trtnode.engines.runtime.reference_nodes import OpenReference, evaluate_here


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a loaded model.

    Attributes:
        threads: Threads of each engine and session; None leaves it to the libraries.
        instances: Runs at the same time.
        shares_cores: True if other models compute on the same cores.
        memory_pattern: As of ``NativeSession``.
        frozen: True if initializers that are inputs are constants, which no request replaces.
        trust: The engines that may run; None where this program has just built them, or found them in its cache.
        known: Names the device, and compares engines that nobody has compared yet; None takes them as they are.
        reference: Opens nodes that nothing else has a kernel for in onnx.reference; None lets none run there.
        apart: Opens a model file in a process with a limit, for requests whose text nothing bounds; None refuses these.
    """

    threads: int | None = None
    instances: int = 1
    shares_cores: bool = False
    memory_pattern: bool = True
    frozen: bool = False
    trust: Trust | None = None
    known: KnownEngines | None = None
    reference: OpenReference | None = evaluate_here
    apart: Callable[[pathlib.Path], Runner] | None = None


ALONE = RunOptions()
"""Of a model that has the cores for itself."""

SHARED = RunOptions(shares_cores=True)
"""Of a model beside others."""
