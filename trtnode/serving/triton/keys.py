"""Every field of Triton's model configuration, and what becomes of it here. docs/triton.md is made of this table."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trtnode.protos import ModelInstanceGroup
from trtnode.serving.triton.controls import control_problem

ENSEMBLE = "ensemble"
PLATFORMS = ("", "onnxruntime", "onnxruntime_onnx", "openvino")
ACCELERATORS = ("tensorrt", "openvino")
PRECISIONS = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16"}
THREADS = "intra_op_thread_count"
MOST_DIGITS = 9


class Effect(enum.StrEnum):
    """The consequence of a field."""

    FOLLOWED = "as in Triton"
    DIFFERS = "differs"
    LOGGED = "logged"
    REFUSED = "refused"


Check = Callable[[Any], str | None]
"""Returns what is wrong with a value; None if it can be had."""


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A field, with all below it that have no entry of their own.

    Attributes:
        effect: What becomes of it.
        text: The difference, what is logged, or why it is refused.
        fault: Refuses some of the values.
        matters: Picks the values that are worth a line, where it is logged; None for all.
    """

    effect: Effect
    text: str = ""
    fault: Check | None = None
    matters: Callable[[Any], bool] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A field of one configuration that is logged or refused.

    Attributes:
        place: Where it stands, such as ``input[0].dims``.
        text: What happens instead, or why it is refused.
        refused: Whether it is.
    """

    place: str
    text: str
    refused: bool


def _runs_onnx(name: str) -> str | None:
    known = name in PLATFORMS
    return None if known else f"is {name!r}, and this server runs ONNX files; take the model out of the repository"


def _one_gpu(group: ModelInstanceGroup) -> str | None:
    several = len(set(group.gpus)) > 1
    return "models can't be spread over GPUs; start a server for each" if several else None


def _accelerator(accelerator: Any) -> str | None:
    if accelerator.name not in ACCELERATORS:
        return f"there is no {accelerator.name!r} here; take it out"
    mode = accelerator.parameters.get("precision_mode", "FP32")
    return None if mode in PRECISIONS else f"precision_mode is {mode!r}; there are {', '.join(PRECISIONS)}"


def _parameter(item: tuple[str, Any]) -> str | None:
    key, value = item[0], item[1].string_value
    if key != THREADS or not value or (value.isdecimal() and len(value) <= MOST_DIGITS):
        return None
    return f"should be a number, not {value[:40]!r}"


def _no_file(item: tuple[str, Any]) -> str | None:
    is_file = item[1].WhichOneof("input_data_type") == "input_data_file"
    return "files can't be read here; use zero_data or random_data" if is_file else None


_FOLLOWED = Key(Effect.FOLLOWED)
_RAGGED = Key(
    Effect.REFUSED, "ragged batching isn't supported; take it out, and set lengths of the model in a servable.yaml"
)
_ENGINE = Key(Effect.LOGGED, "is chosen by the engine")
_ONE_ANSWER = "each request has one answer here; take it out"
_ACCELERATOR = Key(Effect.FOLLOWED, fault=_accelerator)
_LINEAR = Key(Effect.REFUSED, "only plans of TensorRT have such tensors; take it out")
_SHAPE_TENSOR = Key(Effect.LOGGED, "only plans of TensorRT have them; the file says what an input is")

_STATE = Key(Effect.LOGGED, "state stays where it was computed")

KEYS: dict[str, Key] = {
    "name": _FOLLOWED,
    "platform": Key(Effect.FOLLOWED, fault=lambda name: None if name == ENSEMBLE else _runs_onnx(name)),
    "backend": Key(Effect.FOLLOWED, fault=_runs_onnx),
    "runtime": Key(Effect.LOGGED, "ONNX Runtime and the engines are those of this installation"),
    "version_policy": _FOLLOWED,
    "max_batch_size": Key(
        Effect.DIFFERS,
        "requests of a file without a batch axis run one by one",
        fault=lambda size: "should be at least 0" if size < 0 else None,
    ),
    "input": _FOLLOWED,
    "input.is_shape_tensor": _SHAPE_TENSOR,
    "input.allow_ragged_batch": _RAGGED,
    "input.is_non_linear_format_io": _LINEAR,
    "output": _FOLLOWED,
    "output.is_shape_tensor": _SHAPE_TENSOR,
    "output.is_non_linear_format_io": _LINEAR,
    "batch_input": _RAGGED,
    "batch_output": _RAGGED,
    "instance_group": Key(Effect.FOLLOWED, fault=_one_gpu),
    "instance_group.name": Key(Effect.DIFFERS, "instances have no names"),
    "instance_group.kind": Key(
        Effect.LOGGED,
        "the engine decides where a model runs: see `trtnode explain`",
        matters=lambda kind: kind != ModelInstanceGroup.Kind.KIND_CPU,
    ),
    "instance_group.gpus": Key(Effect.LOGGED, "the engine decides where a model runs; several GPUs are refused"),
    "instance_group.profile": _ENGINE,
    "instance_group.rate_limiter": Key(Effect.LOGGED, "executions wait for an instance, and for nothing else"),
    "instance_group.passive": Key(Effect.REFUSED, "would run no request; take the group out"),
    "instance_group.secondary_devices": Key(Effect.REFUSED, "there are none here; take them out"),
    "instance_group.host_policy": Key(Effect.LOGGED, "cores are those of server.grpc.cores and threads"),
    "default_model_filename": Key(Effect.DIFFERS, "only where it is model.onnx, or the only file of its folder"),
    "cc_model_filenames": Key(Effect.LOGGED, "one file is served on every device"),
    "metric_tags": Key(Effect.LOGGED, "metrics have no labels of your own"),
    "dynamic_batching": _FOLLOWED,
    "dynamic_batching.preserve_ordering": Key(Effect.LOGGED, "executions keep the order, answers may pass one another"),
    "dynamic_batching.default_priority_level": Key(Effect.LOGGED, "requests that name none have the last level"),
    "dynamic_batching.default_queue_policy.timeout_action": Key(
        Effect.LOGGED, "late requests are refused, and not delayed"
    ),
    "dynamic_batching.default_queue_policy.default_timeout_microseconds": Key(
        Effect.DIFFERS, "in whole milliseconds, at least 1"
    ),
    "dynamic_batching.default_queue_policy.max_queue_size": Key(Effect.DIFFERS, "0 stands for 256"),
    "dynamic_batching.priority_queue_policy": Key(
        Effect.REFUSED, "one policy holds for all priorities; write it as default_queue_policy"
    ),
    "sequence_batching": _FOLLOWED,
    "sequence_batching.control_input.control": Key(Effect.FOLLOWED, fault=control_problem),
    "sequence_batching.direct": Key(
        Effect.DIFFERS, "there are no slots: sequences that wait at the same time run together"
    ),
    "sequence_batching.direct.minimum_slot_utilization": Key(Effect.LOGGED, "there are no slots"),
    "sequence_batching.oldest.max_candidate_sequences": Key(
        Effect.DIFFERS, "the bound of all sequences; the one that is idle for longest makes room"
    ),
    "sequence_batching.oldest.preserve_ordering": Key(Effect.LOGGED, "answers of a sequence keep their order"),
    "sequence_batching.state.initial_state.name": Key(Effect.DIFFERS, "first values have no names"),
    "sequence_batching.state.use_same_buffer_for_input_output": _STATE,
    "sequence_batching.state.use_growable_memory": _STATE,
    "sequence_batching.iterative_sequence": Key(Effect.REFUSED, _ONE_ANSWER),
    "ensemble_scheduling": Key(Effect.DIFFERS, "the models are merged into one graph, which runs as one model"),
    "ensemble_scheduling.max_inflight_requests": Key(Effect.LOGGED, "no step waits for another one's requests"),
    "ensemble_scheduling.step.model_namespace": Key(Effect.REFUSED, "there is one repository here; take it out"),
    "optimization.graph": Key(Effect.LOGGED, "the graph is optimized in full"),
    "optimization.priority": Key(Effect.LOGGED, "all models have one priority"),
    "optimization.cuda": _ENGINE,
    "optimization.execution_accelerators.gpu_execution_accelerator": _ACCELERATOR,
    "optimization.execution_accelerators.cpu_execution_accelerator": _ACCELERATOR,
    "optimization.execution_accelerators.gpu_execution_accelerator.parameters": Key(
        Effect.LOGGED, "is chosen by the engine; precision_mode is followed", matters=lambda i: i[0] != "precision_mode"
    ),
    "optimization.execution_accelerators.cpu_execution_accelerator.parameters": Key(
        Effect.LOGGED, "is chosen by the engine; precision_mode is followed", matters=lambda i: i[0] != "precision_mode"
    ),
    "optimization.input_pinned_memory": _ENGINE,
    "optimization.output_pinned_memory": _ENGINE,
    "optimization.gather_kernel_buffer_threshold": _ENGINE,
    "optimization.eager_batching": Key(Effect.LOGGED, "batches are joined when they run"),
    "parameters": Key(
        Effect.LOGGED, f"not followed here; {THREADS} is", fault=_parameter, matters=lambda item: item[0] != THREADS
    ),
    "model_warmup": Key(Effect.DIFFERS, "each run is on zeros, in the shapes of `input`"),
    "model_warmup.inputs": Key(Effect.DIFFERS, "each run is on zeros, in the shapes of `input`", fault=_no_file),
    "model_operations": Key(Effect.DIFFERS, "libraries stand below server.custom_op_folders of a --config"),
    "model_transaction_policy": Key(
        Effect.LOGGED, "each request has one answer", fault=lambda policy: _ONE_ANSWER if policy.decoupled else None
    ),
    "model_repository_agents": Key(Effect.REFUSED, "nothing changes files on their way here; take it out"),
    "response_cache": Key(Effect.LOGGED, "answers are not cached"),
    "model_metrics": Key(Effect.LOGGED, "histograms have buckets of this server's own"),
}


def findings(message: Message, path: str = "", place: str = "") -> Iterator[Finding]:
    """Yield each field of a configuration that is logged or refused, in the order of the message."""
    for field, value in message.ListFields():
        below = f"{path}{field.name}"
        key = KEYS.get(below)
        for step, one, inner in _items(field, value):
            here = f"{place}{field.name}{step}"
            if key is not None:
                fault = key.text if key.effect is Effect.REFUSED else key.fault(one) if key.fault else None
                if fault is not None:
                    yield Finding(here, fault, refused=True)
                    continue
                if key.effect is Effect.LOGGED and (key.matters is None or key.matters(one)):
                    yield Finding(here, key.text, refused=False)
                    continue
            if isinstance(inner, Message):
                yield from findings(inner, f"{below}.", f"{here}.")


def _items(field: FieldDescriptor, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the step in a place, the value to judge, and what stands below it, for each value of a field."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        yield from ((f"[{key!r}]", (key, one), one) for key, one in value.items())
    elif field.is_repeated and field.message_type is not None:
        yield from ((f"[{index}]", one, one) for index, one in enumerate(value))
    else:
        yield "", value, value
