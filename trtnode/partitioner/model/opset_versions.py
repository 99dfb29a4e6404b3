"""Lowers the ONNX versions of a model where its operators mean the same in the older ones."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator

import onnx
import onnx_ir as ir

from trtnode.partitioner.model.values import subgraphs

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VersionLimits:
    """The newest versions that a runtime reads.

    Attributes:
        opset: Version of ONNX's own domain.
        ir_version: Version of the file format.
    """

    opset: int
    ir_version: int


def is_too_new(model: ir.Model, limits: VersionLimits) -> bool:
    """Return whether a model states a newer version than a runtime reads."""
    opsets = (imports.get("", 0) for imports in _all_imports(model))
    return model.ir_version > limits.ir_version or any(version > limits.opset for version in opsets)


def lower_versions(model: ir.Model, limits: VersionLimits) -> bool:
    """Lower the versions that a model states, in place, as far as a runtime needs and no further.

    ONNX gives an operator a new version whenever anything about it changes.
    An operator means the same at an older opset in three cases:

    - It has the same version there.
    - Only the list of allowed types grew, and the older list has the types in use.
    - A rule of ``REVIEWED`` says so.

    The file format only grows. A model that an older format can't hold fails to load, so nothing changes silently.

    Args:
        model: A model with the types of its values.
        limits: The newest versions that the runtime reads.

    Returns:
        Whether the model is within the limits now. It is unchanged if an operator prevents that.
    """
    if version_obstacles(model, limits):
        return False
    for imports in _all_imports(model):
        if imports.get("", 0) > limits.opset:
            logger.info("ONNX opset %d is lowered to %d, where all operators mean the same", imports[""], limits.opset)
            imports[""] = limits.opset
    model.ir_version = min(model.ir_version, limits.ir_version)
    return True


def version_obstacles(model: ir.Model, limits: VersionLimits) -> list[ir.Node]:
    """Return the nodes that change their meaning at the newest opset that a runtime reads, those in subgraphs too."""
    return [op for op, version in _operators(model) if not means_the_same(op, version, limits.opset)]


def _all_imports(model: ir.Model) -> list[dict[str, int]]:
    return [model.opset_imports, *(function.opset_imports for function in model.functions.values())]


def _operators(model: ir.Model) -> Iterator[tuple[ir.Node, int]]:
    """Yield every call of ONNX's own operators, with its opset."""
    holders: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for holder in holders:
        version = holder.opset_imports.get("", 0)
        yield from ((op, version) for op in _with_subgraphs(holder) if op.op_identifier() not in model.functions)


def _with_subgraphs(ops: Iterable[ir.Node]) -> Iterator[ir.Node]:
    for op in ops:
        if not op.domain:
            yield op
        for subgraph in subgraphs(op):
            yield from _with_subgraphs(subgraph)


def means_the_same(op: ir.Node, version: int, older: int) -> bool:
    """Return whether a node of one ONNX opset computes the same under an older opset."""
    if version <= older:
        return True
    if not onnx.defs.has(op.op_type, older, ""):
        return False
    new, old = (onnx.defs.get_schema(op.op_type, v, "") for v in (version, older))
    rule = REVIEWED.get((op.op_type, old.since_version, new.since_version))
    if new.since_version == old.since_version:
        return True
    same = rule(op) if rule else _interface(new) == _interface(old)
    return same and _types_fit(op, old)


def keeps_its_meaning(op: ir.Node, version: int, newer: int) -> bool:
    """Return whether a node of one ONNX opset computes the same under a newer opset, as one of another domain does."""
    if op.domain:
        return True
    known = onnx.defs.has(op.op_type, newer, "") and not onnx.defs.get_schema(op.op_type, newer, "").deprecated
    return known and means_the_same(op, newer, version)


_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional

REDEFINED = {"PRelu": 7}
"""The opset that redefined an operator behind the same interface: PRelu had one slope a channel before."""


def extends_operator(op_type: str, newer: int, older: int) -> bool:
    """Return whether an ONNX operator takes at a newer opset everything that it took at an older one."""
    if older < REDEFINED.get(op_type, 0) <= newer:
        return False
    new, old = (onnx.defs.get_schema(op_type, v, "") for v in (newer, older))
    kept = {name: kind for name, kind in _attributes(new).items() if name in old.attributes}
    added = (a for name, a in new.attributes.items() if name not in old.attributes)
    return _adds_ports(new, old) and kept == _attributes(old) and not any(a.required for a in added)


def _adds_ports(new: onnx.defs.OpSchema, old: onnx.defs.OpSchema) -> bool:
    """Return whether the newer schema only adds optional inputs and outputs."""
    return all(
        ours[: len(before)] == before and all(option == _OPTIONAL for _, option, *_ in ours[len(before) :])
        for ours, before in zip(_ports(new), _ports(old), strict=True)
    )


def _interface(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    """Return everything about an operator's version but the allowed types and the function that defines it."""
    return schema.doc, _attributes(schema), _ports(schema)


def _attributes(schema: onnx.defs.OpSchema) -> dict[str, tuple[object, ...]]:
    return {name: (a.type, a.required, str(a.default_value)) for name, a in schema.attributes.items()}


def _ports(schema: onnx.defs.OpSchema) -> list[list[tuple[object, ...]]]:
    return [
        [(p.name, p.option, p.is_homogeneous, p.type_str) for p in ports] for ports in (schema.inputs, schema.outputs)
    ]


def _types_fit(op: ir.Node, schema: onnx.defs.OpSchema) -> bool:
    """Return whether a schema allows the types of a node's values."""
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    for ports, values in ((schema.inputs, op.inputs), (schema.outputs, op.outputs)):
        for index, value in enumerate(values):
            if value is None or not value.name:
                continue
            port = ports[min(index, len(ports) - 1)]
            if _type_name(value) not in allowed.get(port.type_str, {port.type_str}):
                return False
    return True


def _type_name(value: ir.Value) -> str:
    """Return the type as schemas write it, such as ``optional(seq(tensor(float)))``; empty if unknown."""
    return "" if value.type is None else _schema_text(value.type)


def _schema_text(kind: ir.TypeProtocol) -> str:
    if isinstance(kind, ir.SequenceType):
        return f"seq({_schema_text(kind.elem_type)})"
    if isinstance(kind, ir.OptionalType):
        return f"optional({_schema_text(kind.elem_type)})"
    return f"tensor({kind.dtype.name.lower()})"


def _mod_is_defined(op: ir.Node) -> bool:
    """Return whether older opsets define a Mod: that of floats without ``fmod`` came with opset 28."""
    value = op.inputs[0]
    return bool(op.attributes.get_int("fmod", 0)) or (
        value is not None and value.dtype is not None and not value.dtype.is_floating_point()
    )


REVIEWED: dict[tuple[str, int, int], Callable[[ir.Node], bool]] = {
    ("Mod", 13, 28): _mod_is_defined,
    ("Range", 11, 27): lambda op: "stash_type" not in op.attributes,
    ("SpaceToDepth", 13, 28): lambda op: "mode" not in op.attributes,
}
"""Operators whose versions differ in more than types, by name, old and new version: true if a node means the same."""
