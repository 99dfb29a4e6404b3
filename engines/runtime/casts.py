"""Element types of boundary tensors at run time, and the casts for engines that hold them in another one.

An engine may have been built with float16 inputs and outputs (``trtnode.engines.precision.float16_boundaries``). A
tensor has that type between stages if all stages that touch it are such engines. If one of them runs natively here, or
the caller reads the tensor, it has the declared type, and the other engines get casts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.engines.backends.protocols import Buffer, Engine
from trtnode.engines.precision.boundary_types import Types, typed
from trtnode.engines.runtime.plan import PlanStage
from trtnode.partitioner.graph.view import TensorSpec, specs


def held_types(stage: PlanStage, engine: Engine | None) -> Iterator[tuple[str, ir.DataType | None]]:
    """Yield the name of each tensor that a stage reads or writes, with its type there; engines have their own types."""
    values = specs((*stage.inputs, *stage.outputs))
    held = values if engine is None else (*engine.inputs, *engine.outputs)
    return ((value.name, spec.dtype) for value, spec in zip(values, held, strict=True))


def boundary_types(
    stages: Iterable[PlanStage], engines: Mapping[str, Engine], interface: Iterable[TensorSpec]
) -> dict[str, ir.DataType | None]:
    """Return the types of boundary tensors that differ from those that the model declares.

    Args:
        stages: Of a plan.
        engines: By stage name.
        interface: The inputs and outputs of the model, which keep their types.
    """
    declared: dict[str, ir.DataType | None] = {s.name: s.dtype for s in interface}
    found = {name: {kind} for name, kind in declared.items()}
    for stage in stages:
        declared.update((s.name, s.dtype) for s in specs((*stage.inputs, *stage.outputs)))
        for name, kind in held_types(stage, engines.get(stage.name)):
            found.setdefault(name, set()).add(kind)
    return {name: kind for name, kinds in found.items() if len(kinds) == 1 for kind in kinds if kind != declared[name]}


def with_casts(engine: Engine, stage: PlanStage, boundary_types: Types) -> Engine:
    """Return an engine that reads and writes the types of boundary tensors; itself where these are its own."""
    inputs, outputs = typed(specs(stage.inputs), boundary_types), typed(specs(stage.outputs), boundary_types)
    own = (*engine.inputs, *engine.outputs)
    if all(spec.dtype == mine.dtype for spec, mine in zip((*inputs, *outputs), own, strict=True)):
        return engine
    return CastingEngine(engine, inputs, outputs)


class CastingEngine(Engine):
    """An engine between buffers of other element types than its own.

    Attributes:
        inputs: With the types of the buffers that it reads.
        outputs: With the types of the buffers that it writes.
    """

    def __init__(self, engine: Engine, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._engine = engine
        self._before: list[tuple[Buffer, Buffer]] = []
        self._after: list[tuple[Buffer, Buffer]] = []
        self._results: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Set the buffers of ``run``, and give the engine buffers of its own where types differ."""
        own = [_alike(b, spec) for b, spec in zip(inputs, self._engine.inputs, strict=True)]
        self._before = [(mine, b) for mine, b in zip(own, inputs, strict=True) if mine is not b]
        self._after, self._results = [], outputs
        if outputs is None:
            self._engine.bind(own, None)
            return
        written = [_alike(b, spec) for b, spec in zip(outputs, self._engine.outputs, strict=True)]
        self._after = [(b, mine) for mine, b in zip(written, outputs, strict=True) if mine is not b]
        self._engine.bind(own, written)

    def run(self) -> Sequence[Buffer]:
        """Cast the inputs, run, and cast the results.

        Raises:
            OutOfRangeError: As the engine.
            ExecutionError: As the engine.
        """
        _copy(self._before)
        results = self._engine.run()
        _copy(self._after)
        if self._results is not None:
            return self._results
        return [
            np.asarray(result, spec.dtype.numpy()) if spec.dtype else result
            for result, spec in zip(results, self.outputs, strict=True)
        ]

    def fork(self) -> CastingEngine:
        """Return another one around a fork of the engine."""
        return CastingEngine(self._engine.fork(), self.inputs, self.outputs)


def _alike(buffer: Buffer, spec: TensorSpec) -> Buffer:
    """Return the buffer, or another of its shape where an engine takes another type."""
    assert spec.dtype is not None
    dtype = spec.dtype.numpy()
    return buffer if buffer.dtype == dtype else np.empty(buffer.shape, dtype)


def _copy(pairs: Iterable[tuple[Buffer, Buffer]]) -> None:
    with np.errstate(over="ignore"):  # beyond float16 is infinity, in an engine as well
        for target, source in pairs:
            np.copyto(target, source, casting="same_kind")
