"""Compares a model's inputs and outputs with those that its configuration promises to clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.errors import InterfaceError
from trtnode.serving.protocol.wire_signature import WireSignature, WireTensor
from trtnode.serving.schema.model import InterfaceConfig, TensorConfig

logger = logging.getLogger(__name__)

ANY = -1


def check_interface(signature: WireSignature, promised: InterfaceConfig | None) -> None:
    """Refuse a model that doesn't keep what is promised.

    A dimension that one side leaves open fits any on the other, as in Triton.

    Raises:
        InterfaceError: An input or output is missing, or has another type or shape.
    """
    if promised is None:
        return
    outputs = {tensor.name: tensor for tensor in signature.outputs}
    sides: tuple[tuple[str, Mapping[str, TensorConfig], Mapping[str, WireTensor]], ...] = (
        ("input", promised.inputs, signature.inputs),
        ("output", promised.outputs, outputs),
    )
    for kind, wanted, found in sides:
        for name, tensor in wanted.items():
            if problem := _problem(tensor, found.get(name), found):
                raise InterfaceError(signature.model, f"{kind} {name!r} {problem}")
    unnamed = sorted(signature.required - promised.inputs.keys()) if promised.inputs else []
    if unnamed:
        raise InterfaceError(signature.model, f"it needs the input {unnamed[0]!r}, too")


def tell_of_untold(signature: WireSignature, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Log which inputs and outputs of a model clients can't learn of."""
    sides = (("inputs", inputs, signature.inputs), ("outputs", outputs, signature.output_names))
    for kind, tensors, told in sides:
        if names := [tensor.name for tensor in tensors if tensor.name not in told]:
            logger.warning(
                "Model %r: the protocol has no form for its %s %s, so metadata doesn't list them and requests can't "
                "name them",
                signature.model,
                kind,
                ", ".join(map(repr, names)),
            )


def _problem(wanted: TensorConfig, found: WireTensor | None, all_found: Mapping[str, WireTensor]) -> str | None:
    if found is None:
        return f"is missing; there are {', '.join(map(repr, all_found))}"
    if wanted.datatype != found.datatype.name:
        return f"should be {wanted.datatype}, and is {found.datatype.name}"
    if found.shape is not None and not _fits(tuple(wanted.shape), found.shape):
        return f"should have shape {list(wanted.shape)}, and has {list(found.shape)}"
    return None


def _fits(wanted: tuple[int, ...], found: tuple[int, ...]) -> bool:
    pairs = zip(wanted, found, strict=False)
    return len(wanted) == len(found) and all(a == b or ANY in (a, b) for a, b in pairs)
