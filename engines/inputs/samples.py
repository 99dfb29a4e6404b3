"""Finds inputs to check engines with: given ones, or generated ones that the model runs on."""

from __future__ import annotations

import dataclasses
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
from trtnode.engines.inputs.npz_reader import READ_ERRORS
from trtnode.engines.inputs.signature import Signature
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


UNKNOWN_SIZES = (2, 1, 4, 16, 32, 64, 224)
"""Tried in turn for dimensions without a size, small ones first, because checks need no more."""

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
        sizes: Tried in turn for dimensions without a size, until the model runs.

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
    accepted: list[Feeds] = []
    for size, integers in itertools.product(sizes, INTEGERS):
        feeds_by_kind = list(_generate(inputs, size, integers))
        if not feeds_by_kind:
            continue
        empty = _runs(session, feeds_by_kind[0])
        if empty is False:
            return feeds_by_kind
        if empty and not accepted:
            accepted = feeds_by_kind
    return accepted


def _runs(session: Runner, feeds: Feeds) -> bool | None:
    """Return None if the model refuses the inputs, else whether one of its outputs has no elements."""
    try:
        return any(isinstance(r, np.ndarray) and r.size == 0 for r in session.run(feeds))
    except ExecutionError:
        return None


def _generate(inputs: Sequence[TensorSpec], size: int, integers: str) -> Iterator[Feeds]:
    required = [s for s in inputs if not s.optional]
    if any(s.dtype is None or s.shape is None or _too_large(s, size) for s in required):
        return
    for positive in (False, True):
        rng = np.random.default_rng(SEED + positive)
        yield {s.name: _tensor(s, size, integers, rng, positive) for s in required}


def _too_large(spec: TensorSpec, size: int) -> bool:
    return spec.static_shape is None and math.prod(_sizes(spec, size)) > MAX_ELEMENTS


def _sizes(spec: TensorSpec, size: int) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else size for d in spec.shape or ())


def _tensor(spec: TensorSpec, size: int, integers: str, rng: np.random.Generator, positive: bool) -> np.ndarray:
    assert spec.dtype is not None
    shape = _sizes(spec, size)
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
