"""Configuration and statistics of a model as protocol messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from trtnode.protos import (
    ModelConfig,
    ModelEnsembling,
    ModelInput,
    ModelOutput,
    ModelParameter,
    ModelSequenceBatching,
    ModelStatistics,
)
from trtnode.serving.models.servable import Servable
from trtnode.serving.protocol.wire_signature import BYTES, Datatype, WireTensor
from trtnode.serving.schema.model import BatchingConfig, StepConfig
from trtnode.serving.telemetry.request_stats import BatchStats, ModelCounts, Snapshot
from trtnode.serving.triton.conversion import triton_config

Tensor = TypeVar("Tensor", ModelInput, ModelOutput)


def model_config(servable: Servable) -> ModelConfig:
    """Describe how a model is served. Shapes are without the batch axis where the model is batched, as in Triton.

    What its configuration of Triton says besides, such as the format of an input, stands there as well.

    Raises:
        UnavailableError: The model isn't ready.
    """
    signature, batching = servable.signature, servable.batching
    batched, is_stateful = batching is not None, servable.config.state is not None
    origin = triton_config(servable.config)
    inputs, outputs = ({one.name: one for one in origin.input}, {one.name: one for one in origin.output})
    config = ModelConfig(
        name=servable.name,
        platform=servable.platform,
        backend=servable.platform.removesuffix("_onnx"),
        max_batch_size=batching.max_batch_size if batching is not None else 0,
        input=[
            _described(inputs.get(tensor.name, ModelInput()), tensor, batched, tensor.name not in signature.required)
            for tensor in servable.required_inputs()
        ],
        output=[_described(outputs.get(tensor.name, ModelOutput()), tensor, batched) for tensor in signature.outputs],
        instance_group=origin.instance_group
        or [{"name": f"{servable.name}_0", "count": servable.instances, "kind": "KIND_CPU"}],
        dynamic_batching=None if batching is None or is_stateful else _dynamic_batching(batching),
        parameters={key: ModelParameter(string_value=value) for key, value in servable.parameters().items()},
    )
    if is_stateful and not origin.HasField("sequence_batching"):
        idle_us = int(servable.config.sequences.idle_s * 1e6)
        config.sequence_batching.CopyFrom(ModelSequenceBatching(max_sequence_idle_microseconds=idle_us))
    if steps := servable.config.ensemble:
        config.backend = ""
        config.ClearField("instance_group")
        config.ensemble_scheduling.step.extend(map(_described_step, steps))
    for field in ("input", "output", "instance_group", "max_batch_size", "dynamic_batching", "ensemble_scheduling"):
        origin.ClearField(field)
    origin.MergeFrom(config)
    return origin


def _described_step(step: StepConfig) -> ModelEnsembling.Step:
    return ModelEnsembling.Step(
        model_name=step.model, model_version=step.version, input_map=step.inputs, output_map=step.outputs
    )


def _described(written: Tensor, tensor: WireTensor, batched: bool, optional: bool = False) -> Tensor:
    """Return an input or output as it is served, with what its configuration says besides."""
    described = type(written)(name=tensor.name, data_type=_data_type(tensor.datatype), dims=_dims(tensor, batched))
    if isinstance(described, ModelInput):
        described.optional = optional
    for field in ("name", "data_type", "dims"):
        written.ClearField(field)
    described.MergeFrom(written)
    return described


def model_statistics(counts: ModelCounts) -> ModelStatistics:
    """Return the statistics of a model version since it was first loaded."""
    now = counts.snapshot()
    return ModelStatistics(
        name=counts.labels["model"],
        version=counts.labels["version"],
        last_inference=now.last_ms,
        inference_count=now.rows,
        execution_count=now.executions,
        inference_stats=_inference_stats(now),
        batch_stats=[_batch_stats(rows, stats) for rows, stats in now.batches.items()],
    )


def _inference_stats(now: Snapshot) -> dict[str, Any]:
    count, spent = now.success, now.durations
    return {
        "success": _spent(count, spent.total),
        "fail": _spent(sum(now.failures.values()), now.failure_ns),
        "queue": _spent(count, spent.queue),
        "compute_input": _spent(count, spent.compute_input),
        "compute_infer": _spent(count, spent.compute_infer),
        "compute_output": _spent(count, spent.compute_output),
    }


def _batch_stats(rows: int, stats: BatchStats) -> dict[str, Any]:
    count = stats.executions
    return {
        "batch_size": rows,
        "compute_input": _spent(count, stats.compute_input),
        "compute_infer": _spent(count, stats.compute_infer),
        "compute_output": _spent(count, stats.compute_output),
    }


def _spent(count: int, nanoseconds: int) -> dict[str, int]:
    return {"count": count, "ns": nanoseconds}


def _dynamic_batching(batching: BatchingConfig) -> dict[str, Any]:
    return {
        "preferred_batch_size": batching.preferred_batch_sizes,
        "max_queue_delay_microseconds": batching.max_queue_delay_us,
        "preserve_ordering": False,  # executions keep the order, answers may pass one another
        "priority_levels": batching.priority_levels,
        "default_priority_level": batching.priority_levels,
        "default_queue_policy": {
            "timeout_action": "REJECT",
            "default_timeout_microseconds": (batching.timeout_ms or 0) * 1000,
            "allow_timeout_override": not batching.own_timeout,
            "max_queue_size": batching.max_queue_size,
        },
    }


def _data_type(datatype: Datatype) -> str:
    return "TYPE_STRING" if datatype.name == BYTES.name else f"TYPE_{datatype.name}"


def _dims(tensor: WireTensor, batched: bool) -> Iterable[int]:
    shape = (-1,) if tensor.shape is None else tensor.shape
    return shape[1:] if batched else shape
