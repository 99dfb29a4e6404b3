"""Inputs of requests: the user's arrays, or generated ones that fit the model's metadata."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from trtnode.bench.load.errors import InputError, NoAnswerError, RefusedError
from trtnode.bench.load.target import NO_ANSWER, Target
from trtnode.engines.errors import EngineError, ExecutionError
from trtnode.engines.inputs.samples import find_samples, load_samples
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.protos import ModelInferRequest
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.protocol.tensors import to_raw
from trtnode.serving.protocol.wire_signature import BYTES, DATATYPES, WireTensor

Shape = tuple[int, ...]

ELEMENTS = {datatype.name: element for element, datatype in DATATYPES.items()}
"""ONNX element type by its name on the wire."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The user's options for inputs.

    Attributes:
        file: An .npz file with an array for each; None to generate them.
        batch: Size of the first dimension of generated inputs if the model leaves it open.
        shapes: Whole shapes of generated inputs by name. Other open dimensions are 1.
    """

    file: pathlib.Path | None = None
    batch: int = 1
    shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)


def first_request(target: Target, wanted: Wanted, timeout_s: float) -> ModelInferRequest:
    """Return the request to repeat, which was sent once.

    Args:
        target: The model.
        wanted: Source and shapes of its inputs.
        timeout_s: Time limit of the answer.

    Raises:
        InputError: The user's inputs don't fit the model.
        RefusedError: The server answers the request with an error.
        NoAnswerError: It doesn't answer.
    """
    tensors = _tensors(target)
    send = _send_generated if wanted.file is None else _send_given
    return send(target, tensors, wanted, timeout_s).request


def _send_given(target: Target, tensors: dict[str, WireTensor], wanted: Wanted, timeout_s: float) -> _Sender:
    assert wanted.file is not None
    if wanted.shapes or wanted.batch != 1:
        raise InputError("--inputs has shapes of its own. Leave --shape and --batch out.")
    arrays = _read(wanted.file)
    tensors = tensors or _undescribed(target, wanted.file, arrays)
    _check_arrays(wanted.file, arrays, tensors)
    sender = _Sender(target, tensors, timeout_s)
    try:
        sender.run(arrays)
    except ExecutionError as error:
        raise RefusedError(target.model, str(error)) from error
    return sender


def _send_generated(target: Target, tensors: dict[str, WireTensor], wanted: Wanted, timeout_s: float) -> _Sender:
    if not tensors:
        place = f"The server at {target.address}"
        raise InputError(f"{place} names no inputs of model {target.model!r}. Give them with --inputs.")
    _check_use(wanted, tensors)
    sender = _Sender(target, tensors, timeout_s)
    if not find_samples(sender, [_spec(tensor, _shape(tensor, wanted)) for tensor in tensors.values()], None):
        raise RefusedError(target.model, sender.refusal)
    return sender


class _Sender:
    """The remote model, in the form that `find_samples` runs.

    Attributes:
        request: The latest request.
        refusal: The reason of the latest refusal.
    """

    outputs: tuple[str, ...] = ()

    def __init__(self, target: Target, tensors: Mapping[str, WireTensor], timeout_s: float) -> None:
        self.request = ModelInferRequest()
        self.refusal = "no inputs could be generated"
        self._target = target
        self._tensors = tensors
        self._timeout_s = timeout_s

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> list[Any]:
        """Send the inputs; nobody reads the results.

        Raises:
            ExecutionError: The server refuses these inputs.
            NoAnswerError: It wouldn't answer others either.
        """
        del outputs
        self.request = ModelInferRequest(model_name=self._target.model)
        for name, array in feeds.items():
            tensor = self._tensors[name]
            self.request.inputs.add(name=name, datatype=tensor.datatype.name, shape=array.shape)
            self.request.raw_input_contents.append(to_raw(tensor, array))
        try:
            self._target.call("ModelInfer", self.request, self._timeout_s)
        except grpc.RpcError as error:
            if error.code() in NO_ANSWER:
                reason = f"{error.code().name}: {error.details()}"
                raise NoAnswerError(self._target.address, self._target.model, reason) from error
            self.refusal = f"{error.code().name}: {error.details()}"
            raise ExecutionError(self.refusal) from error
        return []


def _tensors(target: Target) -> dict[str, WireTensor]:
    """Return the model's inputs by name.

    Raises:
        InputError: The server names a type that the protocol doesn't have.
    """
    tensors = {}
    for item in target.metadata.inputs:
        if item.datatype not in ELEMENTS:
            raise InputError(f"The server gives input {item.name!r} the type {item.datatype!r}, which KServe V2 lacks.")
        label = f"input {item.name!r} of model {target.model!r}"
        tensors[item.name] = WireTensor(item.name, DATATYPES[ELEMENTS[item.datatype]], tuple(item.shape), label)
    return tensors


def _read(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    try:
        return load_samples(file)
    except EngineError as error:
        raise InputError(str(error)) from error


def _undescribed(target: Target, file: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> dict[str, WireTensor]:
    """Return the tensors of the user's arrays, for a server that doesn't describe its model's inputs.

    Raises:
        InputError: An array has a type that the protocol doesn't have.
    """
    datatypes = {datatype.numpy: datatype for datatype in DATATYPES.values()}
    tensors = {}
    for name, array in arrays.items():
        datatype = BYTES if array.dtype.kind in "SU" else datatypes.get(array.dtype)
        if datatype is None:
            raise InputError(f"{file}: array {name!r} is {array.dtype}, which KServe V2 lacks.")
        tensors[name] = WireTensor(name, datatype, None, f"input {name!r} of model {target.model!r}")
    return tensors


def _check_arrays(file: pathlib.Path, arrays: Mapping[str, np.ndarray], tensors: Mapping[str, WireTensor]) -> None:
    """Refuse arrays that aren't exactly the model's inputs.

    Raises:
        InputError: One is missing, unknown, or has a wrong type or shape.
    """
    if unknown := sorted(set(arrays) - set(tensors)):
        raise InputError(f"{file}: the model has no input {unknown[0]!r}; it has {', '.join(map(repr, tensors))}.")
    if missing := sorted(set(tensors) - set(arrays)):
        raise InputError(f"{file}: there is no array {missing[0]!r}, which is an input of the model. Add it.")
    for name, tensor in tensors.items():
        wanted, found = tensor.datatype.numpy, arrays[name].dtype
        if found != wanted and not (wanted.hasobject and found.kind in "SU"):
            raise InputError(f"{file}: {tensor.label} is {found} there, but takes {tensor.datatype.name}.")
        if tensor.shape is not None:
            _check_shape(f"{file}: ", tensor, arrays[name].shape)


def _check_shape(place: str, tensor: WireTensor, shape: Shape) -> None:
    try:
        tensor.check_shape(shape)
    except InvalidRequestError as error:
        raise InputError(f"{place}{error}.") from error


def _shape(tensor: WireTensor, wanted: Wanted) -> Shape:
    if tensor.name in wanted.shapes:
        _check_shape("--shape: ", tensor, wanted.shapes[tensor.name])
        return wanted.shapes[tensor.name]
    declared = tensor.shape or ()
    return tuple(size if size >= 0 else wanted.batch if axis == 0 else 1 for axis, size in enumerate(declared))


def _check_use(wanted: Wanted, tensors: Mapping[str, WireTensor]) -> None:
    """Refuse options that change nothing.

    Raises:
        InputError: A shape is for no input, or no input has room for the batch.
    """
    if unknown := sorted(set(wanted.shapes) - set(tensors)):
        raise InputError(f"--shape: the model has no input {unknown[0]!r}; it has {', '.join(map(repr, tensors))}.")
    takes_batch = [t for t in tensors.values() if t.name not in wanted.shapes and t.shape and t.shape[0] == -1]
    if wanted.batch != 1 and not takes_batch:
        others = " that has no --shape" if wanted.shapes else ""
        raise InputError(f"--batch {wanted.batch}: no input of the model{others} leaves its first dimension open.")


def _spec(tensor: WireTensor, shape: Shape) -> TensorSpec:
    return TensorSpec(name=tensor.name, dtype=ELEMENTS[tensor.datatype.name], shape=shape)
