"""Shapes of the outputs of a model, as runs on generated inputs show them.

Runs prove nothing. A size that is the same in all of them is taken for fixed, and an engine refuses another one later.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from trtnode.engines.inputs.dimension_names import named, symbols_of, with_sizes
from trtnode.engines.inputs.samples import MAX_ELEMENTS, Runner, find_generated, find_samples
from trtnode.partitioner.graph.view import TensorSpec

BASE_SIZES = (2, 4, 16, 32, 64, 224)
"""Tried in turn for dimensions without a size. Many models take only multiples of a power of two."""


def observe_shapes(
    session: Runner, inputs: Sequence[TensorSpec], given: Sequence[Sequence[TensorSpec]] = ()
) -> dict[str, TensorSpec]:
    """Run a model twice with different sizes of each dimension that varies, or once where none does.

    Args:
        session: The model.
        inputs: Its inputs.
        given: The inputs in each shape that the user gives; tried first, if there are two or more.

    Returns:
        Rank and element type of the outputs that were tensors of one rank in all runs, by name. A size is known where
        all runs gave the same one, except 0, which follows from values. Empty where the model runs on no two sizes.
    """
    required = named([spec for spec in inputs if not spec.optional])
    return _observe(session, required, given) or _observe(session, find_generated(session, required)[0], ())


def _observe(
    session: Runner, inputs: Sequence[TensorSpec], given: Sequence[Sequence[TensorSpec]]
) -> dict[str, TensorSpec]:
    for trial in _trials(inputs, given):
        runs = [_run(session, sized) for sized in trial]
        if all(runs):
            found = [values for run in runs for values in run]
            return {name: spec for name in session.outputs if (spec := _common([values.get(name) for values in found]))}
    return {}


def _trials(
    inputs: Sequence[TensorSpec], given: Sequence[Sequence[TensorSpec]]
) -> Iterator[Sequence[Sequence[TensorSpec]]]:
    """Yield inputs of fixed shapes that differ in each dimension that varies. All of a trial must run."""
    if all(spec.static_shape is not None for spec in inputs):
        yield [inputs]
        return
    if len(given) > 1:
        yield given
    symbols = symbols_of(inputs)
    for base in BASE_SIZES:
        first = with_sizes(inputs, dict.fromkeys(symbols, base))
        for other in (itertools.count(2 * base, base), itertools.repeat(2 * base)):
            second = with_sizes(inputs, dict(zip(symbols, other, strict=False)))
            if first is not None and second is not None:
                yield [first, second]


def _run(session: Runner, inputs: Sequence[TensorSpec]) -> list[Mapping[str, TensorSpec]]:
    """Return the tensors among the results for two sets of generated inputs, if there are any."""
    if sum(math.prod(spec.static_shape or ()) for spec in inputs) > MAX_ELEMENTS:
        return []
    feeds = find_samples(session, inputs, None, sizes=(1,))
    results = (zip(session.outputs, session.run(values), strict=True) for values in feeds)
    return [{name: _spec(name, value) for name, value in found if isinstance(value, np.ndarray)} for found in results]


def _spec(name: str, value: np.ndarray) -> TensorSpec:
    dtype = ir.DataType.STRING if value.dtype.kind in "OU" else ir.DataType.from_numpy(value.dtype)
    return TensorSpec(name=name, dtype=dtype, shape=value.shape)


def _common(specs: Sequence[TensorSpec | None]) -> TensorSpec | None:
    """Return what a tensor's types in several runs have in common; None where that isn't even the rank."""
    shapes = [spec.shape for spec in specs if spec is not None and spec.shape is not None]
    if not specs or specs[0] is None or len(shapes) < len(specs) or len(set(map(len, shapes))) > 1:
        return None
    sizes = (set(found) for found in zip(*shapes, strict=True))
    return dataclasses.replace(
        specs[0], shape=tuple(max(found) or None if len(found) == 1 else None for found in sizes)
    )
