"""The inputs and outputs that clients see: those of the file, narrowed to what its configuration says."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from trtnode.engines.compile.opening import load_checked
from trtnode.engines.inputs.sequences import read_states
from trtnode.engines.inputs.signature import Signature
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.plan_loading import signature_of
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.serving.errors import InterfaceError, ServingError
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.executables.stateful import StatefulExecutable
from trtnode.serving.protocol.wire_signature import WireSignature, WireTensor
from trtnode.serving.schema.model import ModelConfig, TensorConfig
from trtnode.serving.triton.controls import find_controls
from trtnode.serving.triton.conversion import triton_config
from trtnode.serving.triton.wire import as_clients_see

logger = logging.getLogger(__name__)

ANY = -1


def keeping_state(config: ModelConfig, executable: ServedExecutable) -> ServedExecutable:
    """Return what answers requests of a model whose state the server keeps; another executable as it is.

    Raises:
        StateError: The model has no such state.
        InterfaceError: It has no such controls.
    """
    if config.state is None or not isinstance(executable, Executable):
        return executable
    given: str | list[dict[str, Any]] = "auto"
    if not isinstance(config.state, str):
        given = [{key: value for key, value in pair if value is not None} for pair in config.state]
    executable.keep(read_states(given, executable.inputs, executable.outputs, config.sequences.append))
    shown = config.interface.outputs if config.interface is not None else {}
    return StatefulExecutable(executable, shown, find_controls(config.name, triton_config(config), executable.inputs))


def file_problem(config: ModelConfig) -> str:
    """Return what is wrong with the file of a model, or contradicts its configuration, before anything is built of it.

    It is empty where nothing is, and of files that aren't served as they are: those of a pipeline, variants, and
    models whose state the server keeps.
    """
    if config.has_pipeline or config.variants or config.state is not None:
        return ""
    try:
        signature = served_signature(config, signature_of(Graph.of(load_checked(config.path))))
        as_clients_see(signature, triton_config(config), folder_of(config))
    except (PartitionError, ServingError) as error:
        return str(error)
    return ""


def folder_of(config: ModelConfig) -> pathlib.Path:
    """Return the folder of a model, whose path is that of its file: it may hold version folders."""
    folder = config.path.parent
    return folder.parent if folder.name.isdecimal() else folder


def served_signature(config: ModelConfig, executable: ServedExecutable | Signature) -> WireSignature:
    """Return a model's inputs and outputs as its configuration has them.

    A dimension that one side leaves open is that of the other, as in Triton. Tensors that the configuration leaves out
    are not there, unless it names none.

    Raises:
        InterfaceError: An input or output is missing, or has another type or shape.
        UnservableModelError: The protocol can't carry the model's tensors.
    """
    signature = WireSignature.of(config.name, executable.inputs, executable.outputs)
    promised = config.interface
    if promised is None:
        return signature
    inputs = _narrowed(signature, "input", promised.inputs, signature.inputs)
    outputs = _narrowed(signature, "output", promised.outputs, {one.name: one for one in signature.outputs})
    for one in triton_config(config).input:
        if one.optional and one.name in signature.required:
            place = promised.inputs[one.name].place
            problem = f"input {one.name!r} is optional there, and the file has no default for it ({place})"
            raise InterfaceError(signature.model, problem)
    unnamed = sorted(signature.required - inputs.keys())
    if unnamed:
        raise InterfaceError(signature.model, f"it needs the input {unnamed[0]!r}, too")
    return dataclasses.replace(signature, inputs=inputs, outputs=tuple(outputs.values()))


def declared_sizes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs that a configuration gives, by name."""
    wanted = config.interface.inputs if config.interface is not None else {}
    return {name: tensor.shape for name, tensor in wanted.items() if tensor.shape is not None}


def log_unlisted(signature: WireSignature, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Log which inputs and outputs of a model clients can't learn of."""
    sides = (("inputs", inputs, signature.inputs), ("outputs", outputs, signature.output_names))
    for kind, tensors, listed in sides:
        if names := [tensor.name for tensor in tensors if tensor.name not in listed]:
            logger.warning(
                "Model %r: the protocol has no form for its %s %s, so metadata doesn't list them and requests can't "
                "name them",
                signature.model,
                kind,
                ", ".join(map(repr, names)),
            )


def _narrowed(
    signature: WireSignature, kind: str, wanted: Mapping[str, TensorConfig], found: Mapping[str, WireTensor]
) -> dict[str, WireTensor]:
    for name, tensor in wanted.items():
        if problem := _problem(tensor, found.get(name), found):
            place = f" ({tensor.place})" if tensor.place else ""
            raise InterfaceError(signature.model, f"{kind} {name!r} {problem}{place}")
    if not wanted:
        return dict(found)
    return {name: _with_sizes(tensor, wanted[name].shape) for name, tensor in found.items() if name in wanted}


def _with_sizes(tensor: WireTensor, wanted: tuple[int, ...] | None) -> WireTensor:
    if wanted is None:
        return tensor
    pairs = zip(wanted, tensor.shape or wanted, strict=True)
    return dataclasses.replace(tensor, shape=tuple(size if size != ANY else want for want, size in pairs))


def _problem(wanted: TensorConfig, found: WireTensor | None, all_found: Mapping[str, Any]) -> str | None:
    if found is None:
        return f"is missing; there are {', '.join(map(repr, all_found))}"
    if wanted.datatype not in (None, found.datatype.name):
        return f"should be {wanted.datatype}, and is {found.datatype.name}"
    if None not in (wanted.shape, found.shape) and not _fits(tuple(wanted.shape or ()), found.shape or ()):
        return f"should have shape {list(wanted.shape or ())}, and has {list(found.shape or ())}"
    return None


def _fits(wanted: tuple[int, ...], found: tuple[int, ...]) -> bool:
    pairs = zip(wanted, found, strict=False)
    return len(wanted) == len(found) and all(a == b or ANY in (a, b) for a, b in pairs)
