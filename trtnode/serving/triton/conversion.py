"""Triton's configuration of a model as a section of servable.yaml."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pydantic

from trtnode.partitioner.model.regular_files import without_links
from trtnode.protos import DESCRIPTOR
from trtnode.protos import ModelConfig as TritonConfig
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.triton.keys import ENSEMBLE, PRECISIONS, THREADS, Finding, findings

IDLE_US = 1_000_000
"""Triton's time after which an idle sequence ends, where none is given."""
STATE_FOLDER = "initial_state"
"""The folder of a model that holds the first values of its state, each as the bytes of its elements."""
_DATA_TYPES = DESCRIPTOR.enum_types_by_name["DataType"].values_by_number
_PLACES = {
    "versions": "version_policy",
    "batching.preferred_batch_sizes": "dynamic_batching.preferred_batch_size",
    "batching.max_queue_delay_us": "dynamic_batching.max_queue_delay_microseconds",
    "batching.max_queue_size": "dynamic_batching.default_queue_policy.max_queue_size",
    "batching.timeout_ms": "dynamic_batching.default_queue_policy.default_timeout_microseconds",
    "batching.priority_levels": "dynamic_batching.priority_levels",
    "batching": "max_batch_size",
    "instances": "instance_group",
    "threads": "parameters",
    "warmup": "model_warmup",
    "interface": "input",
    "ensemble": "ensemble_scheduling",
    "state": "sequence_batching.state",
    "sequences": "sequence_batching",
    "custom_op_libraries": "model_operations",
    "name": "name",
}
"""The field that each key of servable.yaml is made of."""


def problems_of(config: TritonConfig) -> tuple[list[Finding], list[Finding]]:
    """Return the fields of a configuration that are refused, and those that are logged."""
    found = list(findings(config))
    refused = [one for one in found if one.refused]
    given, steps = config.HasField("ensemble_scheduling"), config.ensemble_scheduling.step
    if (given or config.platform == ENSEMBLE) and not (steps and config.platform in ("", ENSEMBLE)):
        place = "ensemble_scheduling" if given else "platform"
        text = f"an ensemble has platform {ENSEMBLE!r}, and steps in ensemble_scheduling; write both, or neither"
        refused.append(Finding(place, text, refused=True))
    for side in ("input", "output"):
        for index, tensor in enumerate(getattr(config, side)):
            if not tensor.name:
                refused.append(Finding(f"{side}[{index}]", "has no name; write that of the file", refused=True))
            if tensor.HasField("reshape") and not _same_elements(tensor.dims, tensor.reshape.shape):
                text = f"{list(tensor.reshape.shape)} has other elements than dims {list(tensor.dims)}"
                refused.append(Finding(f"{side}[{index}].reshape", text, refused=True))
    return refused, [one for one in found if not one.refused]


def _same_elements(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether each array of one shape becomes an array of the other; at most one size is open in each."""
    if -1 in one or -1 in other:
        return list(one).count(-1) == list(other).count(-1) == 1
    return math.prod(one) == math.prod(other)


def model_of(config: TritonConfig, name: str, folder: pathlib.Path) -> tuple[ModelConfig | None, list[Finding]]:
    """Return the section of servable.yaml that says the same, with what its checks refuse.

    Args:
        config: Without fields that ``problems_of`` refuses.
        name: The model's.
        folder: It holds the model's version folders.
    """
    parts: list[Callable[[TritonConfig], Mapping[str, object]]] = [
        _versions, _interface, _ensemble, _batching, _instances, _threads, _warmup, _engine,
        functools.partial(_sequences, folder),
    ]  # fmt: skip
    section: dict[str, object] = {"name": name, "path": folder.absolute()}
    for part in parts:
        section.update(part(config))
    if libraries := [str(without_links(folder / one)) for one in config.model_operations.op_library_filename]:
        section["custom_op_libraries"] = libraries
    try:
        model = ModelConfig.model_validate(section)
    except pydantic.ValidationError as error:
        deepest = sorted(error.errors(), key=lambda fault: -len(fault["loc"]))  # of a choice, the branch that is meant
        found = {_place_of(fault["loc"]): _text(fault) for fault in reversed(deepest)}
        return None, [Finding(place, text, refused=True) for place, text in found.items()]
    model.came_from(config.SerializeToString(deterministic=True))
    if model.batching is not None:
        model.batching.keep_own_timeout(always=not config.dynamic_batching.default_queue_policy.allow_timeout_override)
        faults = [(_place_of(("batching", key)), text) for key, text in model.batching.problems()]
        return model, [Finding(place, text, refused=True) for place, text in faults]
    return model, []


def triton_config(model: ModelConfig) -> TritonConfig:
    """Return the configuration that a section was made of; an empty one where it stands in servable.yaml."""
    return TritonConfig.FromString(model.origin)


def _text(fault: Any) -> str:
    return f"{str(fault['msg']).removeprefix('Value error, ').removeprefix('Input ')}, not {str(fault['input'])[:60]}"


def _place_of(location: tuple[str | int, ...]) -> str:
    steps = [step for step in location if isinstance(step, str) and step != "options"]
    names = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    return next((_PLACES[one] for one in names if one in _PLACES), "name")


def _versions(config: TritonConfig) -> Mapping[str, object]:
    policy = config.version_policy
    match policy.WhichOneof("policy_choice"):
        case "latest":
            return {"versions": {"latest": policy.latest.num_versions or 1}}
        case "all":
            return {"versions": "all"}
        case "specific":
            return {"versions": list(policy.specific.versions)}
    return {}


def _interface(config: TritonConfig) -> Mapping[str, object]:
    sides = {
        side: {tensor.name: _tensor(tensor, batched=config.max_batch_size > 0) for tensor in tensors}
        for side, tensors in (("inputs", config.input), ("outputs", config.output))
        if tensors
    }
    return {"interface": sides} if sides else {}


def _ensemble(config: TritonConfig) -> Mapping[str, object]:
    steps = [
        {
            "model": step.model_name,
            "version": step.model_version or -1,
            "inputs": dict(step.input_map),
            "outputs": dict(step.output_map),
        }
        for step in config.ensemble_scheduling.step
    ]
    return {"ensemble": steps} if steps else {}


def _sequences(folder: pathlib.Path, config: TritonConfig) -> Mapping[str, object]:
    if not config.HasField("sequence_batching"):
        return {}
    batching = config.sequence_batching
    bounds: dict[str, object] = {"idle_s": (batching.max_sequence_idle_microseconds or IDLE_US) / 1e6}
    if batching.oldest.max_candidate_sequences:
        bounds["max"] = batching.oldest.max_candidate_sequences
    return {"state": [_state(one, folder, config.max_batch_size > 0) for one in batching.state], "sequences": bounds}


def _state(state: Any, folder: pathlib.Path, batched: bool) -> dict[str, object]:
    pair: dict[str, object] = {"input": state.input_name, "output": state.output_name}
    for first in state.initial_state:
        rows = [1 if first.data_file else -1] if batched else []
        pair["shape"] = [*rows, *first.dims]
        if first.data_file:
            pair["initial"] = str(without_links(folder / STATE_FOLDER / first.data_file))
    return pair


def field_of_step(place: Sequence[str | int], config: TritonConfig) -> str:
    """Return the field that stands for a place in the section of an ensemble."""
    match place:
        case ("ensemble", index, *rest):
            fields = {"inputs": "input_map", "outputs": "output_map", "model": "model_name", "version": "model_version"}
            field = "".join(f".{fields[str(key)]}" for key in rest[:1])
            return f"ensemble_scheduling.step[{index}]{field}" + "".join(f"[{name!r}]" for name in rest[1:])
        case ("interface", "outputs", name):
            return next(f"output[{index}]" for index, one in enumerate(config.output) if one.name == name)
    return _place_of(tuple(place))


def _tensor(tensor: Any, *, batched: bool) -> dict[str, object]:
    """Return a tensor as the file has it."""
    kind = _DATA_TYPES[tensor.data_type].name.removeprefix("TYPE_") if tensor.data_type else None
    datatype = {"STRING": "BYTES"}.get(kind or "", kind)
    if not (tensor.dims or tensor.HasField("reshape")):
        return {"datatype": datatype}
    dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
    return {"datatype": datatype, "shape": ([-1] if batched else []) + list(dims)}


def _batching(config: TritonConfig) -> Mapping[str, object]:
    """Return Triton's batching. With a batch size alone, too, requests that wait at the same time run together."""
    if not config.max_batch_size:
        return {}
    batching, sequences = config.dynamic_batching, config.sequence_batching
    queue = batching.default_queue_policy
    delays = [one.max_queue_delay_microseconds for one in (batching, sequences.direct, sequences.oldest)]
    found: dict[str, object] = {
        "max_batch_size": config.max_batch_size,
        "max_queue_delay_us": max(delays),
        "preferred_batch_sizes": list(batching.preferred_batch_size or sequences.oldest.preferred_batch_size),
    }
    if queue.max_queue_size:
        found["max_queue_size"] = queue.max_queue_size
    if queue.default_timeout_microseconds:
        found["timeout_ms"] = max(1, round(queue.default_timeout_microseconds / 1000))
    if batching.priority_levels:
        found["priority_levels"] = batching.priority_levels
    return {"batching": found}


def _instances(config: TritonConfig) -> Mapping[str, object]:
    return {"instances": sum(group.count or 1 for group in config.instance_group)} if config.instance_group else {}


def _threads(config: TritonConfig) -> Mapping[str, object]:
    count = int((config.parameters[THREADS].string_value if THREADS in config.parameters else "") or 0)
    return {"threads": count} if count else {}


def _warmup(config: TritonConfig) -> Mapping[str, object]:
    return {"warmup": sum(run.count or 1 for run in config.model_warmup)} if config.model_warmup else {}


def _engine(config: TritonConfig) -> Mapping[str, object]:
    accelerator = accelerator_of(config)
    if accelerator is None:
        return {"engine": "openvino"} if config.backend == "openvino" else {}
    return {
        "engine": accelerator.name,
        "precision": PRECISIONS[accelerator.parameters.get("precision_mode", "FP32")],
    }


def accelerator_of(config: TritonConfig) -> Any:
    """Return the section of a configuration that names an engine; None where it names none."""
    accelerators = config.optimization.execution_accelerators
    return next(iter((*accelerators.gpu_execution_accelerator, *accelerators.cpu_execution_accelerator)), None)
