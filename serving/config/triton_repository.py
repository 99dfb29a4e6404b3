"""Triton's model repository as a configuration: a folder of models, each with version folders and a ``config.pbtxt``.

Source: docs/user_guide/model_repository.md and model_configuration.md of triton-inference-server/server.
"""

from __future__ import annotations

import logging
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from google.protobuf import text_format

from trtnode.partitioner.model.regular_files import read_regular
from trtnode.protos import DESCRIPTOR, ModelConfig, ModelInstanceGroup, ModelOptimizationPolicy
from trtnode.serving.errors import ConfigError, Problem
from trtnode.serving.models.version_files import DEFAULT_FILE
from trtnode.serving.schema.server import ServableConfig

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.pbtxt"
PLATFORMS = ("", "onnxruntime", "onnxruntime_onnx", "openvino")
MAX_BYTES = 1 << 20
MOST_DIGITS = 9
_UNKNOWN_FIELD = re.compile(r'Message type "inference\.(?P<message>[\w.]+)" has no field named "(?P<field>\w+)"')
RAGGED = ("allow_ragged_batch", "batch_input", "batch_output")
_THREADS = "intra_op_thread_count"
_ACCELERATORS = {"tensorrt": "tensorrt", "openvino": "openvino"}
_DATA_TYPES = DESCRIPTOR.enum_types_by_name["DataType"].values_by_number
_PRECISIONS = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16"}


def models_in(repository: pathlib.Path) -> list[dict[str, object]]:
    """Return the ``models`` of a servable.yaml that serves a repository as Triton would.

    What has no effect here is logged, one line a setting.

    Raises:
        ConfigError: The folder can't be read or holds no model, or a ``config.pbtxt`` asks for what isn't possible.
    """
    if repository.is_file():
        problem = "is a file; name the folder that holds the models' folders, such as resnet50/"
        raise ConfigError(repository, [Problem(problem)])
    try:
        folders = sorted(entry for entry in repository.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise ConfigError(repository, [Problem(f"can't be read ({error.strerror}); check the path")]) from None
    if not folders:
        problem = f"holds no model; a model is a folder, such as resnet50/1/{DEFAULT_FILE}"
        raise ConfigError(repository, [Problem(problem)])
    return [_model(folder) for folder in folders]


def _model(folder: pathlib.Path) -> dict[str, object]:
    model: dict[str, object] = {"name": folder.name, "path": str(folder.absolute())}
    file = folder / CONFIG_FILE
    if not file.exists():
        return model
    config = _read(file)
    problems = [Problem(text, field) for field, text in _problems(config, folder)]
    if problems:
        raise ConfigError(file, problems)
    for field, text in _without_effect(config):
        logger.warning("%s: %s: %s", file, field, text)
    parts: list[Callable[[ModelConfig], Mapping[str, object]]] = [
        _versions, _interface, _batching, _instances, _threads, _warmup, _engine,
    ]  # fmt: skip
    for part in parts:
        model.update(part(config))
    if libraries := [str((folder / name).resolve()) for name in config.model_operations.op_library_filename]:
        model["custom_op_libraries"] = libraries
    return model


def check_libraries(repository: pathlib.Path, config: ServableConfig) -> None:
    """Refuse libraries of custom operators outside of the folders that the server's own configuration names.

    Raises:
        ConfigError: A ``config.pbtxt`` names one. It is a part of the repository, and the library would run here.
    """
    folders = [folder.resolve() for folder in config.server.custom_op_folders]
    for model in config.models:
        for library in model.options.custom_op_libraries:
            if not any(library.is_relative_to(folder) for folder in folders):
                text = (
                    f"{library} is below none of server.custom_op_folders; name its folder there (--config), or move it"
                )
                file = repository / model.name / CONFIG_FILE
                raise ConfigError(file, [Problem(text, "model_operations.op_library_filename")])


def _read(file: pathlib.Path) -> ModelConfig:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ConfigError(file, [Problem(f"larger than {MAX_BYTES} bytes; this is no {CONFIG_FILE}")])
        return text_format.Parse(read_regular(file).decode(), ModelConfig())
    except OSError as error:
        raise ConfigError(file, [Problem(f"can't be read ({error.strerror}); check its permissions")]) from None
    except UnicodeDecodeError:
        raise ConfigError(file, [Problem("not UTF-8; save the file as UTF-8")]) from None
    except text_format.ParseError as error:
        raise ConfigError(file, [_parse_problem(error)]) from None


def _parse_problem(error: text_format.ParseError) -> Problem:
    unknown = _UNKNOWN_FIELD.search(str(error))
    if unknown is not None:
        text = "this server doesn't follow this field; take it out, or serve this model elsewhere"
        if unknown["field"] in RAGGED:
            text = "models of Triton pad by themselves; take it out, and set lengths of the model in a servable.yaml"
        return Problem(text, unknown["field"], error.GetLine())
    text = str(error).rpartition(" : ")[2].rstrip(".")
    return Problem(f"not a model configuration in protobuf's text format: {text}", line=error.GetLine())


def _problems(config: ModelConfig, folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yield the field and the fault of each setting that would change answers and can't be followed."""
    if config.name not in ("", folder.name):
        yield "name", f"is {config.name!r} in the folder {folder.name!r}; give both the same name"
    for field, value in (("platform", config.platform), ("backend", config.backend)):
        if value not in PLATFORMS:
            yield field, f"is {value!r}, and this server runs ONNX files; take the model out of the repository"
    if config.default_model_filename not in ("", *_only_files(folder)):
        name = config.default_model_filename
        yield "default_model_filename", f"is {name!r}; call the file {DEFAULT_FILE}, or leave it alone in its folder"
    if config.max_batch_size < 0:
        yield "max_batch_size", "should be at least 0"
    if any(group.gpus for group in config.instance_group):
        yield "instance_group.gpus", "models can't be spread over GPUs; start a server for each"
    for run in config.model_warmup:
        for name, data in run.inputs.items():
            if data.WhichOneof("input_data_type") == "input_data_file":
                yield f"model_warmup.inputs[{name!r}]", "files can't be read here; use zero_data or random_data"
    for accelerator in _accelerators(config):
        if accelerator.name not in _ACCELERATORS:
            yield "optimization.execution_accelerators", f"there is no {accelerator.name!r} here; take it out"
        mode = accelerator.parameters.get("precision_mode", "FP32")
        if mode not in _PRECISIONS:
            known = ", ".join(_PRECISIONS)
            yield "optimization.execution_accelerators", f"precision_mode is {mode!r}; there are {known}"
    threads = _thread_count(config)
    if threads and not (threads.isdecimal() and len(threads) <= MOST_DIGITS):
        yield f"parameters[{_THREADS!r}]", f"should be a number, not {threads[:40]!r}"


def _only_files(folder: pathlib.Path) -> Iterable[str]:
    """Return the names under which each version's file is found without being told."""
    found = {entry.name for entry in folder.glob("*/*.onnx")}
    return (DEFAULT_FILE, *found) if len(found) == 1 else (DEFAULT_FILE,)


def _without_effect(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the field, and what happens instead, of each setting that answers don't depend on."""
    if config.metric_tags:
        yield "metric_tags", "metrics have no labels of your own"
    if config.optimization.HasField("input_pinned_memory") or config.optimization.HasField("output_pinned_memory"):
        yield "optimization", "pinned memory is chosen by the engine"
    for key in config.parameters:
        if key != _THREADS:
            yield f"parameters[{key!r}]", "not followed here"
    for accelerator in _accelerators(config):
        for key in accelerator.parameters.keys() - {"precision_mode"}:
            yield "optimization.execution_accelerators", f"{key} is chosen by the engine"
    for tensor in config.output:
        if tensor.label_filename:
            yield f"output[{tensor.name!r}].label_filename", "classifications are answered without labels"
    if any(group.kind == ModelInstanceGroup.Kind.KIND_GPU for group in config.instance_group):
        yield "instance_group.kind", "the engine decides where a model runs: see `trtnode explain`"
    batching = config.dynamic_batching
    if batching.preserve_ordering:
        yield "dynamic_batching.preserve_ordering", "executions keep the order, answers may pass one another"
    if batching.default_queue_policy.timeout_action:
        yield "dynamic_batching.default_queue_policy.timeout_action", "late requests are refused, and not delayed"
    if batching.default_priority_level not in (0, batching.priority_levels):
        yield "dynamic_batching.default_priority_level", "requests that name none have the last level"


def _versions(config: ModelConfig) -> Mapping[str, object]:
    policy = config.version_policy
    match policy.WhichOneof("policy_choice"):
        case "latest":
            return {"versions": {"latest": policy.latest.num_versions or 1}}
        case "all":
            return {"versions": "all"}
        case "specific":
            return {"versions": list(policy.specific.versions)}
    return {}


def _interface(config: ModelConfig) -> Mapping[str, object]:
    batch = [-1] if config.max_batch_size else []
    sides = {
        side: {
            tensor.name: {"datatype": _datatype(tensor.data_type), "shape": batch + list(tensor.dims)}
            for tensor in tensors
        }
        for side, tensors in (("inputs", config.input), ("outputs", config.output))
        if tensors
    }
    return {"interface": sides} if sides else {}


def _datatype(number: int) -> str:
    name = _DATA_TYPES[number].name.removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def _batching(config: ModelConfig) -> Mapping[str, object]:
    """Return Triton's batching. With a batch size alone, too, requests that wait at the same time run together."""
    if not config.max_batch_size:
        return {}
    batching = config.dynamic_batching
    queue = batching.default_queue_policy
    found: dict[str, object] = {
        "max_batch_size": config.max_batch_size,
        "max_queue_delay_us": batching.max_queue_delay_microseconds,
        "preferred_batch_sizes": list(batching.preferred_batch_size),
    }
    if queue.max_queue_size:
        found["max_queue_size"] = queue.max_queue_size
    if queue.default_timeout_microseconds:
        found["timeout_ms"] = max(1, round(queue.default_timeout_microseconds / 1000))
    if batching.priority_levels:
        found["priority_levels"] = batching.priority_levels
    return {"batching": found}


def _instances(config: ModelConfig) -> Mapping[str, object]:
    return {"instances": sum(group.count or 1 for group in config.instance_group)} if config.instance_group else {}


def _threads(config: ModelConfig) -> Mapping[str, object]:
    count = int(_thread_count(config) or 0)
    return {"threads": count} if count else {}


def _thread_count(config: ModelConfig) -> str:
    return config.parameters[_THREADS].string_value if _THREADS in config.parameters else ""


def _warmup(config: ModelConfig) -> Mapping[str, object]:
    return {"warmup": sum(run.count or 1 for run in config.model_warmup)} if config.model_warmup else {}


def _engine(config: ModelConfig) -> Mapping[str, object]:
    accelerator = next(_accelerators(config), None)
    if accelerator is None:
        return {"engine": "openvino"} if config.backend == "openvino" else {}
    mode = accelerator.parameters.get("precision_mode", "FP32")
    return {"engine": _ACCELERATORS[accelerator.name], "precision": _PRECISIONS[mode]}


def _accelerators(config: ModelConfig) -> Iterator[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator]:
    accelerators = config.optimization.execution_accelerators
    yield from accelerators.gpu_execution_accelerator
    yield from accelerators.cpu_execution_accelerator
