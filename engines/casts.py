"""Element types of boundary tensors at run time, and the casts for engines that hold them in another one.

Engines may have been built to hand a tensor on in float16 (``engines.carried``). That is its type between the stages
where all stages that touch it are such engines. Where one of them runs natively here after all, or the caller wants to
see the tensor, it has the type that the model declares, and the engines left are given casts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from engines.base import Buffer, Engine
from engines.plan import Stage, specs
from partitioner import TensorSpec

Types = Mapping[str, ir.DataType | None]
"""Element types by the model's names."""


def may_hold(declared: ir.DataType | None, held: ir.DataType | None) -> bool:
    """Whether an engine may hold a tensor in a type, given that which the model declares, if it declares one."""
    return declared in (None, held) or (declared, held) == (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def held_types(stage: Stage, engine: Engine | None) -> Iterator[tuple[str, ir.DataType | None]]:
    """Name of each tensor that a stage reads or writes, and the type in which it does; engines have their own."""
    values = specs((*stage.inputs, *stage.outputs))
    held = values if engine is None else (*engine.inputs, *engine.outputs)
    return ((value.name, spec.dtype) for value, spec in zip(values, held, strict=True))


def carried_types(
    stages: Iterable[Stage], engines: Mapping[str, Engine], interface: Iterable[TensorSpec]
) -> dict[str, ir.DataType | None]:
    """Types of the tensors that cross in another one than the model declares.

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


def typed(values: Iterable[TensorSpec], carried: Types) -> tuple[TensorSpec, ...]:
    """The same tensors in the types in which they cross."""
    return tuple(dataclasses.replace(s, dtype=carried.get(s.name, s.dtype)) for s in values)


def with_casts(engine: Engine, stage: Stage, carried: Types) -> Engine:
    """An engine that reads and writes tensors in the types in which they cross; itself where these are its own."""
    inputs, outputs = typed(specs(stage.inputs), carried), typed(specs(stage.outputs), carried)
    own = (*engine.inputs, *engine.outputs)
    if all(spec.dtype == mine.dtype for spec, mine in zip((*inputs, *outputs), own, strict=True)):
        return engine
    return CastingEngine(engine, inputs, outputs)


class CastingEngine:
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
        """Set where ``run`` reads and writes, and give the engine buffers of its own where types differ."""
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
        """Cast what it reads, run, and cast what it gives.

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
        """Another one around another engine."""
        return CastingEngine(self._engine.fork(), self.inputs, self.outputs)


def _alike(buffer: Buffer, spec: TensorSpec) -> Buffer:
    """The buffer itself, or another of its shape where an engine takes another type."""
    assert spec.dtype is not None
    dtype = spec.dtype.numpy()
    return buffer if buffer.dtype == dtype else np.empty(buffer.shape, dtype)


def _copy(pairs: Iterable[tuple[Buffer, Buffer]]) -> None:
    with np.errstate(over="ignore"):  # beyond float16 is infinity, in an engine as well
        for target, source in pairs:
            np.copyto(target, source, casting="same_kind")
