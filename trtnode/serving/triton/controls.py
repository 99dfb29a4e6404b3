"""Inputs that tell a model of the place of a request in its sequence, as Triton's ``control_input`` names them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.protos import DESCRIPTOR, ModelSequenceBatching
from trtnode.protos import ModelConfig as TritonConfig
from trtnode.serving.errors import InterfaceError, InvalidRequestError
from trtnode.serving.protocol.parameters import SequenceMark
from trtnode.serving.protocol.wire_signature import BYTES, DATATYPES

Kind = ModelSequenceBatching.Control.Kind
_TYPES = DESCRIPTOR.enum_types_by_name["DataType"].values_by_number
_VALUES = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}
"""The type of the input, by the field that has its values."""
IDENTITIES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")
"""The types of the name of a sequence."""


@dataclasses.dataclass(frozen=True, slots=True)
class Control:
    """One such input.

    Attributes:
        spec: Of the model.
        kind: What it tells.
        values: Its values for false and true; none of the name of a sequence.
    """

    spec: TensorSpec
    kind: int
    values: tuple[float, ...]

    def array(self, mark: SequenceMark, rows: int) -> np.ndarray:
        """Return its value for a request at that place, of so many rows.

        Raises:
            InvalidRequestError: The name of the sequence is none of its type.
        """
        sizes = enumerate(self.spec.shape or ())
        shape = tuple(size if isinstance(size, int) else rows if axis == 0 else 1 for axis, size in sizes)
        datatype = DATATYPES[self.spec.dtype] if self.spec.dtype is not None else BYTES
        if self.kind != Kind.CONTROL_SEQUENCE_CORRID:
            is_start, is_end = (self.kind == kind for kind in (Kind.CONTROL_SEQUENCE_START, Kind.CONTROL_SEQUENCE_END))
            told = (mark.start or not is_start) and (mark.end or not is_end)
            return np.full(shape, self.values[told], datatype.numpy)
        if datatype is BYTES:
            return np.full(shape, str(mark.identity), object)
        identity, bounds = mark.identity, np.iinfo(datatype.numpy)
        if isinstance(identity, str) or not bounds.min <= identity <= bounds.max:
            raise InvalidRequestError(
                f"sequence_id should be {datatype.name}, as the input {self.spec.name!r} takes it; send such a number"
            )
        return np.full(shape, identity, datatype.numpy)


def control_problem(control: Any) -> str | None:
    """Return what is wrong with a control of a configuration; None if nothing is."""
    given = [name for name in _VALUES if getattr(control, name)]
    if control.kind == Kind.CONTROL_SEQUENCE_CORRID:
        kind = _TYPES[control.data_type].name
        return None if kind in IDENTITIES else f"has data_type {kind}; write one of {', '.join(IDENTITIES)}"
    if len(given) != 1 or len(getattr(control, given[0])) != 2:
        return f"should have two values, for false and true, in one of {', '.join(_VALUES)}"
    return None


def find_controls(model: str, config: TritonConfig, inputs: Sequence[TensorSpec]) -> tuple[Control, ...]:
    """Return the inputs of a model that its configuration names as controls.

    Raises:
        InterfaceError: The model has no such input, or one of another type.
    """
    specs = {spec.name: spec for spec in inputs}
    return tuple(
        _found(model, specs, one.name, control)
        for one in config.sequence_batching.control_input
        for control in one.control
    )


def _found(model: str, specs: dict[str, TensorSpec], name: str, control: Any) -> Control:
    field = next((field for field in _VALUES if getattr(control, field)), "")
    wanted = _VALUES.get(field) or _TYPES[control.data_type].name.removeprefix("TYPE_").replace("STRING", "BYTES")
    spec = specs.get(name)
    if spec is None:
        raise InterfaceError(model, f"control_input {name!r} is missing; there are {', '.join(map(repr, specs))}")
    found = DATATYPES[spec.dtype].name if spec.dtype is not None and spec.dtype in DATATYPES else "of another type"
    if found != wanted:
        raise InterfaceError(model, f"control_input {name!r} should be {wanted}, and is {found}")
    return Control(spec, control.kind, tuple(getattr(control, field)) if field else ())
