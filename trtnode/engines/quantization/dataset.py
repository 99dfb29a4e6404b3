"""Samples to calibrate with: from an .npz file, a folder of them, or a function. Read one at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.engines.errors import CalibrationDataError, InvalidInputError
from trtnode.engines.inputs.npz_reader import READ_ERRORS, ArrayStream, open_arrays
from trtnode.engines.inputs.samples import Feeds
from trtnode.engines.inputs.signature import Signature
from trtnode.engines.quantization.user_functions import load_function
from trtnode.partitioner.graph.view import TensorSpec, describe

SUFFIXES = (".npz", ".npy")


class CalibrationDataset:
    """Samples of a model's inputs, streamed as often as needed.

    - An .npz file: one array an input. An array without axes is the same for all samples. Else a leading axis counts
      samples. It is an axis more than the input has, or the input's first one. In the latter case a sample has as many
      rows as the model fixes there, or one. Arrays of other names, such as labels, are left out.
    - The same where inputs have first axes of their own, such as nodes and edges of a graph, or states that begin with
      layers: where arrays of any file give different numbers of samples, each file is one request.
    - A folder: .npz files as above, and .npy files of the same form, in the order of their names. There is one .npy
      file an input, named like it; a model with one input takes any number of any names.
    - ``module:function``: a function without arguments. It yields one dictionary of arrays a sample, each array just
      as the model takes it. The module is looked for as ``load_function`` says.

    Attributes:
        source: File, folder or function that the user gave.
    """

    def __init__(self, source: str | pathlib.Path) -> None:
        self.source = str(source)

    def feeds(self, inputs: Sequence[TensorSpec], *, limit: int | None = None) -> Iterator[Feeds]:
        """Stream samples that fit a model.

        Args:
            inputs: The model's inputs.
            limit: The most samples to give.

        Yields:
            An array for each input.

        Raises:
            CalibrationDataError: The source is missing or unreadable, has no samples, or one that doesn't fit: a wrong
                name, type or shape, NaN or infinity.
        """
        signature = Signature(tuple(inputs), ())
        known = {spec.name for spec in inputs}
        number = 0
        for number, sample in enumerate(itertools.islice(self._samples(inputs), limit), 1):
            try:
                feeds = signature.check({name: value for name, value in sample.items() if name in known}, None)
            except InvalidInputError as error:
                raise CalibrationDataError(self.source, f"sample {number}: {error}") from None
            for name, value in feeds.items():
                if not _is_finite(value):
                    raise CalibrationDataError(self.source, f"sample {number}: input {name!r} holds NaN or infinity")
            yield feeds
        if not number:
            raise CalibrationDataError(self.source, "there are no samples", "Give at least one.")

    def count(self, inputs: Sequence[TensorSpec]) -> int | None:
        """Count the samples; None where only calling a function tells.

        Raises:
            CalibrationDataError: As ``feeds``.
        """
        if self._is_function:
            return None
        total = 0
        for chunk in self._chunks(inputs):
            with chunk.open() as arrays:
                total += chunk.length(arrays)
        return total

    @property
    def _is_function(self) -> bool:
        path = pathlib.Path(self.source)
        return ":" in self.source and path.suffix not in SUFFIXES and not path.exists()

    def _samples(self, inputs: Sequence[TensorSpec]) -> Iterator[Mapping[str, Any]]:
        if self._is_function:
            return self._call()
        return itertools.chain.from_iterable(chunk.samples() for chunk in self._chunks(inputs))

    def _call(self) -> Iterator[Mapping[str, Any]]:
        advice = "Give the name of a function that yields dictionaries of arrays."
        try:
            function = load_function(self.source)
        except (ImportError, AttributeError, ValueError) as error:
            raise CalibrationDataError(self.source, f"there is no such function ({error})", advice) from None
        try:
            for sample in function():
                if not isinstance(sample, Mapping):
                    raise CalibrationDataError(self.source, f"it yields {type(sample).__name__}", advice)
                yield sample
        except CalibrationDataError:
            raise
        except Exception as error:  # the user's own code raises anything
            raise CalibrationDataError(self.source, f"it raises {type(error).__name__}: {error}") from error

    def _chunks(self, inputs: Sequence[TensorSpec]) -> list[_Chunk]:
        chunks = self._files(inputs)
        if len(_required(inputs)) > 1 and any(chunk.is_one_request for chunk in chunks):
            return [dataclasses.replace(chunk, whole=True) for chunk in chunks]
        return chunks

    def _files(self, inputs: Sequence[TensorSpec]) -> list[_Chunk]:
        path = pathlib.Path(self.source)
        if not path.is_dir():
            return [_Chunk((path,), inputs)]
        archives = [_Chunk((file,), inputs) for file in sorted(path.glob("*.npz"))]
        arrays = sorted(path.glob("*.npy"))
        if arrays and len(_required(inputs)) > 1:
            return [*archives, _Chunk(tuple(arrays), inputs)]
        return [*archives, *(_Chunk((file,), inputs) for file in arrays)]


@dataclasses.dataclass(frozen=True, slots=True)
class _Chunk:
    """Files that together hold an array for each input: all with the same number of samples, or the whole is one."""

    files: tuple[pathlib.Path, ...]
    inputs: Sequence[TensorSpec]
    whole: bool = False

    @contextlib.contextmanager
    def open(self) -> Iterator[dict[str, ArrayStream]]:
        """The arrays of inputs, by name."""
        with contextlib.ExitStack() as stack:
            try:
                arrays = {n: a for file in self.files for n, a in stack.enter_context(open_arrays(file)).items()}
            except FileNotFoundError:
                raise CalibrationDataError(self._shown, "there is no such file", "Check the path.") from None
            except READ_ERRORS as error:
                problem = f"not an .npz or .npy file of arrays ({error})"
                raise CalibrationDataError(self._shown, problem, "Write one with numpy.savez or numpy.save.") from None
            yield self._of_inputs(arrays)

    @property
    def is_one_request(self) -> bool:
        """True if arrays count samples differently, and their inputs don't name the same first axis."""
        with self.open() as arrays:
            lengths = self._lengths(arrays)
            first = [
                spec.shape[0] for spec in lengths if spec.shape and len(spec.shape) == len(arrays[spec.name].shape)
            ]
            named = [axis for axis in first if isinstance(axis, str)]
            return len(set(lengths.values())) > 1 and len(first) == len(lengths) and len(set(named)) == len(named)

    def length(self, arrays: Mapping[str, ArrayStream]) -> int:
        """Number of samples."""
        lengths = self._lengths(arrays)
        if self.whole or (arrays and not lengths):
            return 1
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{length} of {spec.name!r}" for spec, length in lengths.items())
            problem = f"its arrays have different numbers of samples: {listed}"
            raise CalibrationDataError(self._shown, problem, "Give as many of each, or one request a file.")
        return min(lengths.values(), default=0)

    def samples(self) -> Iterator[Feeds]:
        with self.open() as arrays:
            present = [spec for spec in self.inputs if spec.name in arrays]
            read = _read_request if self.whole else _read_sample
            shared: dict[str, np.ndarray] = {}
            for _ in range(self.length(arrays)):
                try:
                    shared = shared or {
                        s.name: arrays[s.name].read(1).reshape(()) for s in present if _is_shared(s, arrays[s.name])
                    }
                    others = (spec for spec in present if spec.name not in shared)
                    yield {**shared, **{s.name: read(s, arrays[s.name]) for s in others}}
                except READ_ERRORS as error:
                    raise CalibrationDataError(self._shown, f"can't be read to its end ({error})") from None

    @property
    def _shown(self) -> str:
        return str(self.files[0] if len(self.files) == 1 else self.files[0].parent)

    def _of_inputs(self, arrays: dict[str, ArrayStream]) -> dict[str, ArrayStream]:
        required = _required(self.inputs)
        if len(required) == 1 and self.files[0].suffix == ".npy":
            return {required[0].name: next(iter(arrays.values()))}
        for spec in required:
            if spec.name not in arrays:
                listed = ", ".join(map(repr, arrays)) or "nothing"
                problem = f"there is no array {spec.name!r} ({describe(spec)}), only {listed}"
                raise CalibrationDataError(self._shown, problem, "Name each array like the input that it is for.")
        return {spec.name: arrays[spec.name] for spec in self.inputs if spec.name in arrays}

    def _lengths(self, arrays: Mapping[str, ArrayStream]) -> dict[TensorSpec, int]:
        """Numbers of samples that the arrays give, of inputs that count them."""
        present = [spec for spec in self.inputs if spec.name in arrays]
        return {s: self._length(s, arrays[s.name]) for s in present if not _is_shared(s, arrays[s.name])}

    def _length(self, spec: TensorSpec, array: ArrayStream) -> int:
        rows, _ = _rows(spec, array.shape)
        if array.shape[0] % rows:
            problem = f"array {spec.name!r} has {array.shape[0]} rows, but the model takes {rows} at a time"
            raise CalibrationDataError(self._shown, problem)
        return array.shape[0] // rows


def _required(inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
    return [spec for spec in inputs if not spec.optional]


def _is_shared(spec: TensorSpec, array: ArrayStream) -> bool:
    """Return whether a file holds one value for all its samples: a scalar, or one element for an input without axes."""
    return not array.shape or (spec.shape == () and array.shape == (1,))


def _rows(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[int, bool]:
    """Return the rows of a sample, and True if their axis is one that the input doesn't have."""
    if spec.shape is not None and len(shape) == len(spec.shape) + 1:
        return 1, True
    first = spec.shape[0] if spec.shape else 1
    return (first if isinstance(first, int) and first else 1), False


def _read_sample(spec: TensorSpec, array: ArrayStream) -> np.ndarray:
    rows, extra = _rows(spec, array.shape)
    values = array.read(rows)
    return values[0] if extra else values


def _read_request(_: TensorSpec, array: ArrayStream) -> np.ndarray:
    return array.read(array.shape[0])


def _is_finite(value: np.ndarray) -> bool:
    return value.dtype.kind not in "fV" or bool(np.isfinite(value.astype(np.float32)).all())
