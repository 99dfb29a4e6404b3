"""Finds inputs to check engines with: given ones, or generated ones that the model runs on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import math
import pathlib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from trtnode.engines.errors import EngineError, ExecutionError, InvalidInputError
from trtnode.engines.inputs.dimension_names import (
    free_sizes,
    has_expressions,
    named,
    symbols_of,
    with_names,
    with_sizes,
)
from trtnode.engines.inputs.npz_reader import READ_ERRORS
from trtnode.engines.inputs.signature import Signature
from trtnode.engines.inputs.size_relations import SizeRelations
from trtnode.partitioner.graph.view import TensorSpec

logger = logging.getLogger(__name__)

Feeds = Mapping[str, np.ndarray]


class Runner(Protocol):
    """Runs a whole model: natively, or by the reference."""

    outputs: tuple[str, ...]

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Return results in the order of ``outputs``.

        Raises:
            ExecutionError: The model does not run on these inputs.
        """
        ...


class Remembering:
    """A runner that has its first and last results at hand: inputs that a model was found to run on needn't run again.

    The first ones are those that samples begin with.
    """

    def __init__(self, runner: Runner) -> None:
        self.outputs = runner.outputs
        self._runner = runner
        self._known: list[tuple[Mapping[str, Any], list[Any]]] = []

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run; where equal inputs ran first or last, return what they gave."""
        if outputs is not None:
            return self._runner.run(feeds, outputs)
        for known, results in self._known:
            if _are_equal(known, feeds):
                return results
        del self._known[1:]  # their memory is free for the next results
        self._known.append((feeds, self._runner.run(feeds)))
        return self._known[-1][1]


def _are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def equal(a: Any, b: Any) -> bool:
        arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        return a is b or (arrays and a.dtype == b.dtype and np.array_equal(a, b))

    return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())


UNKNOWN_SIZES = (2, 1, 4, 16, 32, 64, 224)
"""Tried in turn for dimensions without a size, small ones first, because checks need no more."""

LARGE_ROW = 2**16
"""Elements of an input, such as an image, of which a check has one or two: a run takes long, and shows as much."""

START_SIZES = (2, 4)
"""Sizes from which relations between sizes are searched, where the model runs on no equal sizes."""

INTEGERS = ("bits", "zeros", "ones")
"""Tried in turn for integer inputs: they may be indices, lengths or masks, so only small values are safe."""

MAX_ELEMENTS = 2**22
"""Of a generated input with unknown dimensions; a larger guess would cost more memory than it is worth."""

SEED = 20240229


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampledSizes(TensorSpec):
    """An input of integers that shapes are computed from, with the elements of its samples."""

    elements: tuple[int, ...]


def load_samples(path: pathlib.Path) -> Feeds:
    """Read inputs from an .npz file.

    Raises:
        EngineError: The file is missing or not an .npz of plain arrays.
    """
    if not path.is_file():
        raise EngineError(f"{path}: there is no such file. Check the path.")
    try:
        if not zipfile.is_zipfile(path):
            raise EngineError(f"{path}: not an .npz file of arrays. Write one with numpy.savez.")
        with np.load(path, allow_pickle=False) as archive:
            return {name: _array(path, archive, name) for name in archive.files}
    except (*READ_ERRORS, TypeError) as error:
        raise EngineError(f"{path}: not an .npz file of arrays ({error}). Write one with numpy.savez.") from error


def _array(path: pathlib.Path, archive: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    try:
        return archive[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise EngineError(
            f"{path}: array {name!r} holds Python objects. Write it as numbers, or as str with numpy.savez."
        ) from error


def read_given(path: pathlib.Path, signature: Signature) -> Feeds:
    """Read the inputs that a user gives for a model; other arrays of the file are left out with a warning.

    Raises:
        EngineError: The file is missing or not an .npz of plain arrays.
        InvalidInputError: They don't fit the model.
    """
    try:
        return signature.check(only_inputs(load_samples(path), signature.inputs), None)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def only_inputs(arrays: Feeds, inputs: Sequence[TensorSpec]) -> Feeds:
    """Return the arrays that a model takes, without others such as labels, of which a warning tells."""
    names = {spec.name for spec in inputs}
    for name in sorted(arrays.keys() - names):
        logger.warning("Array %r is no input of the model; it is left out", name)
    return {name: array for name, array in arrays.items() if name in names}


def find_samples(
    session: Runner,
    inputs: Sequence[TensorSpec],
    given: pathlib.Path | None,
    sizes: Sequence[int] = UNKNOWN_SIZES,
) -> list[Feeds]:
    """Find inputs on which a model runs.

    Args:
        session: The model.
        inputs: Its inputs.
        given: The user's own inputs, if any.
        sizes: Tried in turn for all symbols of dimensions without a size, until the model runs. Where it runs on none
            of them, relations between sizes are searched.

    Returns:
        The given inputs; else two generated sets of the same shapes, one with normal and one with positive
        numbers; empty if the model runs on nothing that is generated.

    Raises:
        InvalidInputError: The model does not run on the given inputs.
    """
    if given is not None:
        taken = {spec.name for spec in inputs}
        feeds = {name: array for name, array in load_samples(given).items() if name in taken}
        try:
            session.run(feeds)
        except ExecutionError as error:
            raise InvalidInputError(f"{given}: the model does not run on these inputs: {error}") from error
        return [feeds]
    return find_generated(session, inputs, sizes)[1]


def find_generated(
    session: Runner, inputs: Sequence[TensorSpec], sizes: Sequence[int] = UNKNOWN_SIZES
) -> tuple[tuple[TensorSpec, ...], list[Feeds]]:
    """Find inputs on which a model runs, and the names of their sizes.

    Args:
        session: The model.
        inputs: Its inputs.
        sizes: As of ``find_samples``.

    Returns:
        The required inputs, with a name for each size that isn't fixed; a size that follows from others is an
        expression of their names. Then the generated inputs, as ``find_samples`` returns them.
    """
    required = named([spec for spec in inputs if not spec.optional])
    symbols = symbols_of(required)
    accepted: list[Feeds] = []
    for size in sizes:
        found, whole = _equal_sizes(session, required, size)
        if whole:
            return required, found
        accepted = accepted or found
        if size in START_SIZES and len(symbols) > 1 and not accepted:
            relations = SizeRelations(symbols, functools.partial(_refusal, session, required))
            if (start := relations.find_start(size)) is not None:
                related = with_names(required, relations.expressions(start))
                return related, _equal_sizes(session, related, size)[0] or _generate(required, start)
    return required, accepted


def relate_sizes(session: Runner, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...] | None:
    """Return a model's inputs, with names of sizes as its runs relate them; None where it runs on nothing generated."""
    related, samples = find_generated(session, inputs)
    if not samples:
        return None
    symbols = symbols_of(related)
    start = free_sizes(related, {name: array.shape for name, array in samples[0].items()})
    if len(symbols) > 1 and start.keys() == set(symbols) and not has_expressions(related):
        refusal = functools.partial(_refusal, session, related)
        related = with_names(related, SizeRelations(symbols, refusal).expressions(start))
    by_name = {spec.name: spec for spec in related}
    return tuple(by_name.get(spec.name, spec) for spec in inputs)


def empty_samples(
    session: Runner, inputs: Sequence[TensorSpec], base: Feeds
) -> Iterator[list[tuple[Feeds, list[Any]]]]:
    """Yield inputs with one size at 0, in two sizes of the others, and what the model makes of them.

    Args:
        session: The model.
        inputs: Its inputs.
        base: Generated inputs that it runs on.
    """
    related = named([spec for spec in inputs if spec.name in base])
    large, start = large_rows(related), free_sizes(related, {name: array.shape for name, array in base.items()})
    apart = {name: size + (1 if name in large else place + 1) for place, (name, size) in enumerate(start.items())}
    for name in start:
        tried = (*_generate(related, {**start, name: 0})[:1], *_generate(related, {**apart, name: 0})[1:])
        found = ((feeds, _results(session, feeds)) for feeds in tried)
        if accepted := [(feeds, results) for feeds, results in found if results is not None]:
            yield accepted


def one_step(session: Runner, inputs: Sequence[TensorSpec], feeds: Feeds) -> Feeds:
    """Return inputs of one step of a decoder.

    Some result of a decoder is an input, the past, and the new steps behind it along one axis. The size that is the
    number of steps is set to 1.

    Args:
        session: The model.
        inputs: Its inputs, as ``find_generated`` returns them.
        feeds: Generated inputs that it runs on.

    Returns:
        Inputs of one step, whose other sizes are those of ``feeds``; ``feeds`` itself for all other models.
    """
    sizes = free_sizes(inputs, {name: array.shape for name, array in feeds.items()})
    continued = _continued(feeds, session.run(feeds))
    for symbol in (name for name, size in sizes.items() if continued and size > 1):
        for step in _generate(inputs, {**sizes, symbol: 1})[:1]:
            with contextlib.suppress(ExecutionError):
                stepped = _continued(step, session.run(step))
                if any(n == 1 and (name, shape) in continued for (name, shape), n in stepped.items()):
                    return step
    return feeds


def _continued(feeds: Feeds, results: Sequence[Any]) -> dict[tuple[str, tuple[int, ...]], int]:
    """Return the numbers of steps by which results continue inputs, by name and shape of the input."""
    pairs = itertools.product(feeds.items(), results)
    return {(name, given.shape): n for (name, given), result in pairs if (n := _steps(given, result))}


def _steps(given: np.ndarray, result: Any) -> int:
    """Return by how much a result that begins with an input of real numbers is longer; 0 for all others."""
    if not isinstance(result, np.ndarray) or given.dtype.kind != "f" or given.ndim != result.ndim:
        return 0
    longer = [new - old for old, new in zip(given.shape, result.shape, strict=True) if new != old]
    begins = len(longer) == 1 and longer[0] > 0 and np.array_equal(result[tuple(map(slice, given.shape))], given)
    return longer[0] if begins else 0


def large_rows(inputs: Sequence[TensorSpec]) -> set[str]:
    """Return the symbols of named inputs that number large rows."""
    rows = ((s.shape[0], math.prod(d for d in s.shape if isinstance(d, int))) for s in inputs if s.shape)
    return {str(name) for name, elements in rows if elements >= LARGE_ROW}.intersection(symbols_of(inputs))


def sizes_of(inputs: Sequence[TensorSpec], size: int) -> dict[str, int]:
    """Return one size for all symbols of named inputs, but one large row where it is two, and the other way round."""
    large = large_rows(inputs)
    return {name: 3 - size if name in large and size < 3 else size for name in symbols_of(inputs)}


def _equal_sizes(session: Runner, inputs: Sequence[TensorSpec], size: int) -> tuple[list[Feeds], bool]:
    """Return inputs with one size for all symbols, and whether all results have elements; none where none runs."""
    accepted: list[Feeds] = []
    for integers in INTEGERS:
        feeds_by_kind = _generate(inputs, sizes_of(inputs, size), integers)
        results = _results(session, feeds_by_kind[0]) if feeds_by_kind else None
        if results is None:
            continue
        if not any(isinstance(r, np.ndarray) and r.size == 0 for r in results):
            return feeds_by_kind, True
        accepted = accepted or feeds_by_kind
    return accepted, False


def _results(session: Runner, feeds: Feeds) -> list[Any] | None:
    """Return what a model makes of inputs; None if it refuses them."""
    try:
        return session.run(feeds)
    except ExecutionError:
        return None


def _refusal(session: Runner, inputs: Sequence[TensorSpec], sizes: Mapping[str, int]) -> str | None:
    """Return the node at which a run ends with an error, or that error; None where it ends without."""
    feeds = _generate(inputs, sizes)
    if not feeds:
        return "no inputs"
    try:
        session.run(feeds[0])
    except ExecutionError as error:
        return error.node or str(error)
    return None


def _generate(inputs: Sequence[TensorSpec], sizes: Mapping[str, int], integers: str = INTEGERS[0]) -> list[Feeds]:
    """Return normal and positive inputs in some sizes; nothing where they can't be made."""
    fixed = with_sizes(inputs, sizes)
    if fixed is None or any(s.dtype is None or s.static_shape is None for s in fixed):
        return []
    free = [one for spec, one in zip(inputs, fixed, strict=True) if spec.static_shape is None]
    if any(math.prod(spec.static_shape or ()) > MAX_ELEMENTS for spec in free):
        return []
    rngs = ((positive, np.random.default_rng(SEED + positive)) for positive in (False, True))
    return [{s.name: _tensor(s, integers, rng, positive) for s in fixed} for positive, rng in rngs]


def _tensor(spec: TensorSpec, integers: str, rng: np.random.Generator, positive: bool) -> np.ndarray:
    assert spec.dtype is not None
    shape = spec.static_shape or ()
    if isinstance(spec, SampledSizes):
        return np.array(spec.elements, spec.dtype.numpy()).reshape(shape)
    if spec.dtype == ir.DataType.STRING:
        return np.full(shape, "a", dtype=object)
    if spec.dtype.is_floating_point():
        values = rng.uniform(0.05, 1.0, shape) if positive else rng.standard_normal(shape)
        return values.astype(spec.dtype.numpy())
    if integers == "bits":
        return rng.integers(0, 2, shape).astype(spec.dtype.numpy())
    return np.full(shape, integers == "ones", dtype=spec.dtype.numpy())
