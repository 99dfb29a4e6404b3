"""Inputs and outputs of a model in the protocol's words, made once when the model loads."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.errors import InvalidRequestError, UnservableModelError


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Datatype:
    """An element type that the protocol can carry.

    Attributes:
        name: Its name on the wire.
        numpy: Its little-endian layout in raw contents; object for BYTES, whose elements have no fixed size.
        contents: The field of typed contents that carries it; None where only raw contents do.
    """

    name: str
    numpy: np.dtype
    contents: str | None


def _datatype(name: str, element: onnx_ir.DataType, contents: str | None) -> Datatype:
    return Datatype(name, element.numpy(), contents)


BYTES = Datatype("BYTES", np.dtype(object), "bytes_contents")
IMAGES = Datatype("BYTES", np.dtype(object), "bytes_contents")
"""Like BYTES, but its elements are files, not text."""
_ONNX = onnx_ir.DataType
BOOL = _datatype("BOOL", _ONNX.BOOL, "bool_contents")
DATATYPES: Mapping[onnx_ir.DataType, Datatype] = {
    _ONNX.BOOL: BOOL,
    _ONNX.UINT8: _datatype("UINT8", _ONNX.UINT8, "uint_contents"),
    _ONNX.UINT16: _datatype("UINT16", _ONNX.UINT16, "uint_contents"),
    _ONNX.UINT32: _datatype("UINT32", _ONNX.UINT32, "uint_contents"),
    _ONNX.UINT64: _datatype("UINT64", _ONNX.UINT64, "uint64_contents"),
    _ONNX.INT8: _datatype("INT8", _ONNX.INT8, "int_contents"),
    _ONNX.INT16: _datatype("INT16", _ONNX.INT16, "int_contents"),
    _ONNX.INT32: _datatype("INT32", _ONNX.INT32, "int_contents"),
    _ONNX.INT64: _datatype("INT64", _ONNX.INT64, "int64_contents"),
    _ONNX.FLOAT16: _datatype("FP16", _ONNX.FLOAT16, None),
    _ONNX.BFLOAT16: _datatype("BF16", _ONNX.BFLOAT16, None),
    _ONNX.FLOAT: _datatype("FP32", _ONNX.FLOAT, "fp32_contents"),
    _ONNX.DOUBLE: _datatype("FP64", _ONNX.DOUBLE, "fp64_contents"),
    _ONNX.STRING: BYTES,
}
"""Every element type of the protocol, by ONNX element type."""


MOST_BYTES = 96 << 20
"""Memory of Python's objects for the elements of one request."""
STRING_BYTES = 128
"""Memory of an element of BYTES beside its text, while it is read: bytes, text and their places in lists."""
MOST_STRINGS = MOST_BYTES // STRING_BYTES
"""Elements of BYTES of one request."""
MOST_RANK = 64
"""Dimensions of a tensor, as many as numpy's arrays have."""
MESSAGE_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WireTensor:
    """One input or output.

    Attributes:
        name: As in requests.
        datatype: Its element type.
        shape: -1 for a dimension that may vary; None where even the rank is unknown.
        label: How messages call it.
        classes: The name of each class, where it has any.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...] | None
    label: str
    classes: tuple[str, ...] = ()

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse a shape that doesn't fit.

        Raises:
            InvalidRequestError: Wrong rank, a negative dimension, or a fixed dimension with another size.
        """
        declared = self.shape
        if len(shape) > MOST_RANK:
            raise InvalidRequestError(f"{self.label} has {len(shape)} dimensions; the most are {MOST_RANK}")
        if declared is not None and len(shape) == len(declared) and _fits(declared, shape):
            return
        if any(size < 0 for size in shape):
            raise InvalidRequestError(f"{self.label} has shape {list(shape)}; no dimension may be negative")
        if declared is not None:
            raise InvalidRequestError(f"{self.label} has shape {list(shape)}, but takes {list(declared)}")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class WireSignature:
    """Inputs and outputs of one model.

    Attributes:
        model: Its name.
        inputs: By name; also those that have a default.
        required: Names of the inputs without a default.
        outputs: In the model's order.
        output_names: Those of ``outputs``.
        row_elements: Elements of all inputs, with dimensions that may vary as 1.
        message_bytes: The most bytes of a message.
    """

    model: str
    inputs: Mapping[str, WireTensor]
    required: frozenset[str]
    outputs: tuple[WireTensor, ...]
    output_names: list[str] = dataclasses.field(init=False)
    row_elements: int = dataclasses.field(init=False)
    message_bytes: int = MESSAGE_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_names", [tensor.name for tensor in self.outputs])
        object.__setattr__(self, "row_elements", sum(map(_row_elements, self.inputs.values())))

    @classmethod
    def of(cls, model: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> WireSignature:
        """Translate a model's tensors.

        Inputs and outputs that the protocol has no type for (sequences, maps, 4-bit integers, ...) are left out where
        the model works without them.

        Raises:
            UnservableModelError: A required input has no type in the protocol, or no output has, or no request may have
                as many strings as the inputs.
        """
        refused = [spec.name for spec in inputs if not spec.optional and spec.dtype not in DATATYPES]
        if refused:
            raise UnservableModelError(model, f"no datatype for its input {refused[0]!r}")
        taken = _wire_tensors(f"of model {model!r}", "input", inputs)
        given = _wire_tensors(f"of model {model!r}", "output", outputs)
        if not given:
            raise UnservableModelError(model, "no datatype for any of its outputs")
        required = frozenset(spec.name for spec in inputs if not spec.optional)
        strings = sum(_row_elements(one) for one in taken if one.name in required and one.datatype is BYTES)
        if strings > MOST_STRINGS:
            raise UnservableModelError(model, f"room for {MOST_STRINGS} strings a request, and it takes {strings}")
        return cls(
            model=model,
            inputs={tensor.name: tensor for tensor in taken},
            required=required,
            outputs=tuple(given),
        )

    def taking_images(self, names: Iterable[str]) -> WireSignature:
        """Return the signature of a model whose named inputs come as encoded images, one an element."""
        inputs = dict(self.inputs)
        for name in names:
            batch = (inputs[name].shape or (-1,))[:1]
            inputs[name] = dataclasses.replace(inputs[name], datatype=IMAGES, shape=batch)
        return dataclasses.replace(self, inputs=inputs)

    def taking_texts(self, name: str, made: Iterable[str], *, pairs: bool) -> WireSignature:
        """Return the signature of a model whose inputs ``made`` are made of one input of texts."""
        others = {key: one for key, one in self.inputs.items() if key not in set(made)}
        label = f"input {name!r} of model {self.model!r}"
        inputs = {name: WireTensor(name, BYTES, (-1, 2) if pairs else (-1,), label), **others}
        required = (self.required & others.keys()) | {name}
        return dataclasses.replace(self, inputs=inputs, required=required)

    def naming_classes(self, output: str, classes: Sequence[str]) -> WireSignature:
        """Return the signature of a model whose classes have names, those of an output."""
        named = [
            dataclasses.replace(one, classes=tuple(classes)) if one.name == output else one for one in self.outputs
        ]
        return dataclasses.replace(self, outputs=tuple(named) if classes else self.outputs)

    def check_counts(self, inputs: int, outputs: int) -> None:
        """Refuse a request of more tensors than the model has, before anything is made of them.

        Raises:
            InvalidRequestError: It has more inputs, or names more outputs.
        """
        if inputs > len(self.inputs):
            raise InvalidRequestError(
                f"the request has {inputs} inputs, but model {self.model!r} has {_listed(self.inputs)}"
            )
        if outputs > len(self.outputs):
            raise InvalidRequestError(
                f"the request names {outputs} outputs, but model {self.model!r} has {_listed(self.output_names)}"
            )

    def check_present(self, names: Iterable[str]) -> None:
        """Refuse a request that lacks an input.

        Raises:
            InvalidRequestError: A required input isn't among ``names``.
        """
        missing = self.required.difference(names)
        if missing:
            raise InvalidRequestError(f"{self.inputs[min(missing)].label} is missing from the request")

    def unknown_input(self, name: str) -> InvalidRequestError:
        """The error for an input that the model doesn't have."""
        return InvalidRequestError(f"model {self.model!r} has no input {name!r}; it has {_listed(self.inputs)}")

    def select(self, names: Sequence[str]) -> tuple[WireTensor, ...]:
        """Return the requested outputs, all of them if ``names`` is empty, in the model's order.

        Raises:
            InvalidRequestError: A name is unknown, or stands there twice.
        """
        if not names or names == self.output_names:
            return self.outputs
        wanted = set(names)
        chosen = tuple(tensor for tensor in self.outputs if tensor.name in wanted)
        if len(chosen) != len(wanted):
            known = self.output_names
            unknown = next(name for name in names if name not in known)
            raise InvalidRequestError(f"model {self.model!r} has no output {unknown!r}; it has {_listed(known)}")
        if len(wanted) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidRequestError(f"the request names the output {twice!r} twice; name each that you want once")
        return chosen


def _row_elements(tensor: WireTensor) -> int:
    return math.prod(max(size, 1) for size in tensor.shape or ())


@functools.lru_cache(maxsize=1024)
def _fits(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a shape of the declared rank is allowed. Clients repeat shapes, so the answer is mostly known."""
    return all(size >= 0 and want in (-1, size) for size, want in zip(shape, declared, strict=True))


def _wire_tensors(owner: str, kind: str, specs: Iterable[TensorSpec]) -> list[WireTensor]:
    return [
        WireTensor(spec.name, DATATYPES[spec.dtype], _wire_shape(spec), f"{kind} {spec.name!r} {owner}")
        for spec in specs
        if spec.dtype is not None and spec.dtype in DATATYPES
    ]


def _wire_shape(spec: TensorSpec) -> tuple[int, ...] | None:
    if spec.shape is None:
        return None
    return tuple(size if isinstance(size, int) else -1 for size in spec.shape)


def _listed(names: Iterable[str], most: int = 8) -> str:
    known = list(names)
    shown = ", ".join(repr(name) for name in known[:most])
    return shown if len(known) <= most else f"{shown} and {len(known) - most} more"
