"""What is sent: the user's arrays, or generated ones that fit what the server says about the model."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from benchmarks.load.errors import InputError, RefusedError
from benchmarks.load.target import SILENCE, Target
from engines import EngineError, ExecutionError
from engines.samples import find_samples, load_samples
from partitioner import TensorSpec
from protos import ModelInferRequest, ModelInferResponse
from serving.errors import InvalidRequestError
from serving.signature import DATATYPES, WireTensor
from serving.tensors import to_raw

Shape = tuple[int, ...]

ELEMENTS = {datatype.name: element for element, datatype in DATATYPES.items()}
"""ONNX element type by its name on the wire."""


def first_request(
    target: Target, *, file: pathlib.Path | None, batch: int, shapes: Mapping[str, Shape], timeout_s: float
) -> tuple[ModelInferRequest, ModelInferResponse]:
    """Make the request that is to be sent again and again, and send it once.

    Args:
        target: The model.
        file: An .npz file with an array for each input; None to generate them.
        batch: Size of generated inputs' first dimension, where the model leaves it open.
        shapes: Whole shapes of generated inputs, by name; other open dimensions have one element.
        timeout_s: How long the server may take to answer.

    Returns:
        The request and the server's answer to it.

    Raises:
        InputError: The file or a shape doesn't fit the model.
        RefusedError: The server doesn't answer the request.
    """
    if file is not None and (shapes or batch != 1):
        raise InputError("--inputs has shapes of its own. Leave --shape and --batch out.")
    tensors = _tensors(target)
    sender = _Sender(target, tensors, timeout_s)
    if file is not None:
        arrays = _read(file, tensors)
        try:
            sender.run(arrays)
        except ExecutionError as error:
            raise RefusedError(target.model, str(error)) from error
    else:
        specs = [_spec(tensor, _shape(tensor, batch, shapes)) for tensor in tensors.values()]
        _check_use(batch, shapes, tensors)
        if not find_samples(sender, specs, None):
            raise RefusedError(target.model, sender.refusal)
    return sender.request, sender.response


class _Sender:
    """The remote model, as what `find_samples` tries inputs on.

    Attributes:
        request: The latest one.
        response: The latest answer.
        refusal: Why the server refused the latest request that it refused.
    """

    outputs: tuple[str, ...] = ()

    def __init__(self, target: Target, tensors: Mapping[str, WireTensor], timeout_s: float) -> None:
        self.request = ModelInferRequest()
        self.response = ModelInferResponse()
        self.refusal = "no inputs could be generated"
        self._target = target
        self._tensors = tensors
        self._timeout_s = timeout_s

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Send the inputs. The results stay in ``response``.

        Raises:
            ExecutionError: The server refuses these inputs.
            RefusedError: It wouldn't answer others either.
        """
        del outputs
        self.request = ModelInferRequest(model_name=self._target.model)
        for name, array in feeds.items():
            tensor = self._tensors[name]
            self.request.inputs.add(name=name, datatype=tensor.datatype.name, shape=array.shape)
            self.request.raw_input_contents.append(to_raw(tensor, array))
        try:
            self.response = self._target.call("ModelInfer", self.request, self._timeout_s)
        except grpc.RpcError as error:
            if error.code() in SILENCE:
                raise RefusedError(self._target.model, error.details()) from error
            self.refusal = f"{error.code().name}: {error.details()}"
            raise ExecutionError(self.refusal) from error
        return []


def _tensors(target: Target) -> dict[str, WireTensor]:
    """The model's inputs by name.

    Raises:
        InputError: The server names no input, or a type that the protocol doesn't have.
    """
    tensors = {}
    for item in target.metadata.inputs:
        if item.datatype not in ELEMENTS:
            raise InputError(f"The server gives input {item.name!r} the type {item.datatype!r}, which KServe V2 lacks.")
        label = f"input {item.name!r} of model {target.model!r}"
        tensors[item.name] = WireTensor(item.name, DATATYPES[ELEMENTS[item.datatype]], tuple(item.shape), label)
    if not tensors:
        raise InputError(f"The server at {target.address} names no inputs of model {target.model!r}: nothing to send.")
    return tensors


def _read(file: pathlib.Path, tensors: Mapping[str, WireTensor]) -> dict[str, np.ndarray]:
    try:
        arrays = load_samples(file)
    except EngineError as error:
        raise InputError(str(error)) from error
    if unknown := sorted(set(arrays) - set(tensors)):
        raise InputError(f"{file}: the model has no input {unknown[0]!r}; it has {', '.join(map(repr, tensors))}.")
    if missing := sorted(set(tensors) - set(arrays)):
        raise InputError(f"{file}: there is no array {missing[0]!r}, which is an input of the model. Add it.")
    return {name: _fitting(file, tensor, arrays[name]) for name, tensor in tensors.items()}


def _fitting(file: pathlib.Path, tensor: WireTensor, array: np.ndarray) -> np.ndarray:
    wanted = tensor.datatype.numpy
    if array.dtype != wanted and not (wanted.hasobject and array.dtype.kind in "SU"):
        raise InputError(f"{file}: {tensor.label} is {array.dtype} there, but takes {tensor.datatype.name}.")
    _check_shape(f"{file}: ", tensor, array.shape)
    return array


def _check_shape(place: str, tensor: WireTensor, shape: Shape) -> None:
    try:
        tensor.check_shape(shape)
    except InvalidRequestError as error:
        raise InputError(f"{place}{error}.") from error


def _shape(tensor: WireTensor, batch: int, shapes: Mapping[str, Shape]) -> Shape:
    if tensor.name in shapes:
        _check_shape("--shape: ", tensor, shapes[tensor.name])
        return shapes[tensor.name]
    declared = tensor.shape or ()
    return tuple(size if size >= 0 else batch if axis == 0 else 1 for axis, size in enumerate(declared))


def _check_use(batch: int, shapes: Mapping[str, Shape], tensors: Mapping[str, WireTensor]) -> None:
    """Refuse options that change nothing.

    Raises:
        InputError: A shape is for no input, or no input has room for the batch.
    """
    if unknown := sorted(set(shapes) - set(tensors)):
        raise InputError(f"--shape: the model has no input {unknown[0]!r}; it has {', '.join(map(repr, tensors))}.")
    open_first = [t for t in tensors.values() if t.name not in shapes and t.shape and t.shape[0] == -1]
    if batch != 1 and not open_first:
        raise InputError(f"--batch {batch}: no input of the model leaves its first dimension open. Leave --batch out.")


def _spec(tensor: WireTensor, shape: Shape) -> TensorSpec:
    return TensorSpec(name=tensor.name, dtype=ELEMENTS[tensor.datatype.name], shape=shape)
