"""A model's tensors as clients see them where Triton's configuration says more than the file: shapes, and labels."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trtnode.partitioner.model.regular_files import read_regular, without_links
from trtnode.protos import ModelConfig as TritonConfig
from trtnode.serving.errors import InvalidRequestError, LabelFileError
from trtnode.serving.protocol.wire_signature import WireSignature, WireTensor

MOST_LABEL_BYTES = 1 << 24


def as_clients_see(signature: WireSignature, config: TritonConfig, folder: pathlib.Path) -> WireSignature:
    """Return a model's signature with the shapes and labels that its configuration gives.

    Args:
        signature: As the model takes and gives arrays.
        config: Of the model.
        folder: Of the model, with the files that the configuration names.

    Raises:
        LabelFileError: A file of labels can't be read, or isn't in the folder.
    """
    tensors: list[Any] = [*config.input, *config.output]
    shapes = {one.name: tuple(one.dims) for one in tensors if one.HasField("reshape")}
    files = {one.name: one.label_filename for one in config.output if one.label_filename}
    labels = {name: _read_labels(signature.model, folder, file) for name, file in files.items()}

    def seen(tensor: WireTensor) -> WireTensor:
        shape = tensor.shape
        if tensor.name in shapes:
            shape = (*((-1,) if config.max_batch_size else ()), *shapes[tensor.name])
        return dataclasses.replace(tensor, shape=shape, classes=labels.get(tensor.name, ()))

    inputs = {name: seen(tensor) for name, tensor in signature.inputs.items()}
    return dataclasses.replace(signature, inputs=inputs, outputs=tuple(map(seen, signature.outputs)))


def shapes_of_clients(config: TritonConfig) -> dict[str, tuple[list[int], list[int]]]:
    """Return the shape that clients see, and that of the file, of each tensor that has two, by name; 0 is the batch."""
    tensors: list[Any] = [one for one in (*config.input, *config.output) if one.HasField("reshape")]
    batch = [0] if config.max_batch_size else []
    return {one.name: ([*batch, *one.dims], [*batch, *one.reshape.shape]) for one in tensors}


class Reshapes:
    """Arrays from the shapes that clients see to those of the model, and back."""

    def __init__(self, config: TritonConfig) -> None:
        self._batch_axes = 1 if config.max_batch_size else 0
        self._inputs = {one.name: tuple(one.reshape.shape) for one in config.input if one.HasField("reshape")}
        self._outputs = {one.name: tuple(one.dims) for one in config.output if one.HasField("reshape")}

    @classmethod
    def of(cls, config: TritonConfig) -> Reshapes | None:
        """Return those of a configuration; None where it has none."""
        found = cls(config)
        return found if found._inputs or found._outputs else None

    def taken(self, feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the arrays of a request as the model takes them."""
        return self._reshaped(feeds, self._inputs)

    def passing_on(self, then: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return what passes the arrays of an answer on as clients see them, and errors as they are."""

        def pass_on(outcome: Any) -> None:
            try:
                outcome = outcome if isinstance(outcome, BaseException) else self._reshaped(outcome, self._outputs)
            except InvalidRequestError as error:
                outcome = error
            then(outcome)

        return pass_on

    def _reshaped(self, arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        changed = dict(arrays)
        for name in shapes.keys() & arrays.keys():
            array = arrays[name]
            try:
                changed[name] = array.reshape(array.shape[: self._batch_axes] + shapes[name])
            except ValueError:
                raise InvalidRequestError(
                    f"{name!r} has shape {list(array.shape)}, which doesn't become {list(shapes[name])}"
                ) from None
        return changed


def _read_labels(model: str, folder: pathlib.Path, name: str) -> tuple[str, ...]:
    file = folder / name
    if not without_links(file).is_relative_to(without_links(folder)):
        raise LabelFileError(model, file, "it is outside of the model's folder")
    try:
        if file.stat().st_size > MOST_LABEL_BYTES:
            raise LabelFileError(model, file, f"it has more than {MOST_LABEL_BYTES} bytes")
        return tuple(read_regular(file).decode().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise LabelFileError(model, file, str(getattr(error, "strerror", None) or "it is not UTF-8")) from None
