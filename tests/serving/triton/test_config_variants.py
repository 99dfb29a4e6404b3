"""Variants of config.pbtxt: each is followed, logged with its line, or refused with its line."""

from __future__ import annotations

import logging
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from trtnode.serving.config.triton_repository import models_in
from trtnode.serving.errors import ConfigError
from trtnode.serving.schema.model import ModelConfig

Read = Callable[[str], ModelConfig]

TENSOR = 'name: "a" data_type: TYPE_FP32'


@pytest.fixture
def read(models: pathlib.Path, tmp_path: pathlib.Path) -> Read:
    """Read a configuration of the model ``sum``, which has versions 1 and 3."""
    for version in (1, 3):
        (tmp_path / "sum" / str(version)).mkdir(parents=True)
        shutil.copy(models / "two.onnx", tmp_path / "sum" / str(version) / "model.onnx")

    def configured(text: str) -> ModelConfig:
        (tmp_path / "sum" / "config.pbtxt").write_text(text)
        (model,) = models_in(tmp_path)
        return model

    return configured


FOLLOWED: list[tuple[str, Callable[[ModelConfig], Any], Any]] = [
    ("", lambda one: (one.name, one.batching, one.interface), ("sum", None, None)),
    ('name: "sum"', lambda one: one.name, "sum"),
    ('platform: "onnxruntime_onnx"', lambda one: one.options.engine, "auto"),
    ('backend: "onnxruntime"', lambda one: one.options.engine, "auto"),
    ('backend: "openvino"', lambda one: one.options.engine, "openvino"),
    ("# nothing but a comment\n", lambda one: one.name, "sum"),
    ('default_model_filename: "model.onnx"', lambda one: one.name, "sum"),
    ("max_batch_size: 0", lambda one: one.batching, None),
    ("max_batch_size: 8", lambda one: one.batching.max_batch_size, 8),
    ("max_batch_size: 8", lambda one: one.batching.max_queue_delay_us, 0),
    ("max_batch_size: 8 dynamic_batching { }", lambda one: one.batching.preferred_batch_sizes, ()),
    (
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 2, 4 ] }",
        lambda one: one.batching.preferred_batch_sizes,
        (2, 4),
    ),
    (
        "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 50 }",
        lambda one: one.batching.max_queue_delay_us,
        50,
    ),
    ("max_batch_size: 8 dynamic_batching < priority_levels: 3 >", lambda one: one.batching.priority_levels, 3),
    (
        "max_batch_size: 8 dynamic_batching { default_queue_policy { max_queue_size: 4 } }",
        lambda one: one.batching.max_queue_size,
        4,
    ),
    (
        "max_batch_size: 8 dynamic_batching { default_queue_policy { default_timeout_microseconds: 10400 } }",
        lambda one: (one.batching.timeout_ms, one.batching.own_timeout),
        (10, True),
    ),
    (
        "max_batch_size: 8 dynamic_batching { default_queue_policy { allow_timeout_override: true } }",
        lambda one: one.batching.own_timeout,
        False,
    ),
    (f"input [ {{ {TENSOR} dims: [ -1, 3 ] }} ]", lambda one: one.interface.inputs["a"].shape, (-1, 3)),
    (f"input {{ {TENSOR} dims: -1 dims: 3 }}", lambda one: one.interface.inputs["a"].shape, (-1, 3)),
    (f"max_batch_size: 2 input {{ {TENSOR} dims: 3 }}", lambda one: one.interface.inputs["a"].shape, (-1, 3)),
    ('input { name: "a" }', lambda one: one.interface.inputs["a"].shape, None),
    ('input { name: "a" data_type: TYPE_STRING }', lambda one: one.interface.inputs["a"].datatype, "BYTES"),
    ('input { name: "a" data_type: TYPE_BF16 }', lambda one: one.interface.inputs["a"].datatype, "BF16"),
    (f"input {{ {TENSOR} dims: 3 format: FORMAT_NCHW }}", lambda one: one.interface.inputs["a"].shape, (3,)),
    (
        f"max_batch_size: 2 input {{ {TENSOR} dims: 1 reshape {{ shape: [ ] }} }}",
        lambda one: one.interface.inputs["a"].shape,
        (-1,),
    ),
    (
        f"input {{ {TENSOR} dims: 6 reshape {{ shape: [ 2, 3 ] }} }}",
        lambda one: one.interface.inputs["a"].shape,
        (2, 3),
    ),
    (f"input {{ {TENSOR} optional: true }}", lambda one: one.interface.inputs["a"].datatype, "FP32"),
    ('output { name: "sum" label_filename: "l.txt" }', lambda one: list(one.interface.outputs), ["sum"]),
    ("instance_group { count: 2 kind: KIND_CPU }", lambda one: one.instances, 2),
    ('instance_group [ { name: "x" count: 2 }, { count: 1 } ]', lambda one: one.instances, 3),
    ("version_policy { all { } }", lambda one: one.versions, "all"),
    (
        "ensemble_scheduling { step { model_name: 'a' input_map { key: 'x' value: 'y' } } }",
        lambda one: (one.ensemble[0].model, one.ensemble[0].version, one.ensemble[0].inputs),
        ("a", -1, {"x": "y"}),
    ),
    ("version_policy { latest { num_versions: 2 } }", lambda one: one.versions.latest, 2),
    ("version_policy: { specific { versions: [ 1, 3 ] } }", lambda one: one.versions, (1, 3)),
    ('model_warmup { name: "w" count: 5 }', lambda one: one.warmup, 5),
    (
        'parameters { key: "intra_op_thread_count" value: { string_value: "2" } }',
        lambda one: one.threads,
        2,
    ),
    (
        "optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }",
        lambda one: (one.options.engine, one.options.precision),
        ("openvino", "fp32"),
    ),
]

LOGGED: list[tuple[str, str]] = [
    ("optimization { graph { level: 1 } }", "1: optimization.graph: the graph is optimized in full"),
    ("optimization {\n  priority: PRIORITY_MAX }", "2: optimization.priority: all models have one priority"),
    ("optimization { cuda { graphs: true } }", "1: optimization.cuda: is chosen by the engine"),
    ("optimization { input_pinned_memory { enable: true } }", "1: optimization.input_pinned_memory: is chosen"),
    ("optimization { gather_kernel_buffer_threshold: 2 }", "1: optimization.gather_kernel_buffer_threshold: is chosen"),
    ("optimization {\n\neager_batching: true }", "3: optimization.eager_batching: batches are joined"),
    ("response_cache { enable: true }", "1: response_cache: answers are not cached"),
    ("model_transaction_policy { decoupled: false }", "1: model_transaction_policy: each request has one answer"),
    ("instance_group { rate_limiter { priority: 2 } }", "1: instance_group[0].rate_limiter: executions wait for"),
    ('instance_group [ { }, { profile: "p" } ]', "1: instance_group[1].profile: is chosen by the engine"),
    ('instance_group { host_policy: "h" }', "1: instance_group[0].host_policy: cores are those of"),
    ("instance_group {\n  kind: KIND_GPU\n  gpus: [ 0 ] }", "2: instance_group[0].kind: the engine decides"),
    ("instance_group {\n  kind: KIND_GPU\n  gpus: [ 0 ] }", "3: instance_group[0].gpus: the engine decides"),
    ('cc_model_filenames { key: "7.5" value: "m" }', "1: cc_model_filenames['7.5']: one file is served on every"),
    ('metric_tags {\n  key: "team" value: "a" }', "2: metric_tags['team']: metrics have no labels of your own"),
    ('runtime: "x"', "1: runtime: ONNX Runtime and the engines are those of this installation"),
    ("model_metrics { }", "1: model_metrics: histograms have buckets"),
    ("dynamic_batching { preserve_ordering: true }", "1: dynamic_batching.preserve_ordering: executions keep"),
    (
        "dynamic_batching { default_queue_policy { timeout_action: DELAY } }",
        "1: dynamic_batching.default_queue_policy.timeout_action: late requests are refused",
    ),
    (
        '\nparameters { key: "a" value { string_value: "1" } }\nparameters { key: "b" value { string_value: "1" } }',
        "3: parameters['b']: not followed here",
    ),
    (f"input {{ {TENSOR} is_shape_tensor: true }}", "1: input[0].is_shape_tensor: only plans of TensorRT have them"),
    ("from_the_future: 3", "config.pbtxt:1: from_the_future: unknown to this version, and not followed"),
    ("zzz { name: 'x' yyy: [ 1, 2 ] }\nbackend: 'openvino'", "config.pbtxt:1: zzz: unknown to this version"),
]

REFUSED: list[tuple[str, str]] = [
    ('name: "other"', "1: name: is 'other' in the folder 'sum'; give both the same name"),
    ('\nbackend: "python"', "2: backend: is 'python', and this server runs ONNX files; take the model out"),
    ('platform: "tensorrt_plan"', "1: platform: is 'tensorrt_plan', and this server runs ONNX files"),
    ('platform: "ensemble"', "1: platform: an ensemble has platform 'ensemble', and steps in ensemble_scheduling"),
    (
        "max_batch_size: 2\nsequence_batching { iterative_sequence: true }",
        "2: sequence_batching.iterative_sequence: each",
    ),
    ("ensemble_scheduling { }", "1: ensemble_scheduling: an ensemble has platform 'ensemble', and steps in"),
    ('platform: "ensemble"\nensemble_scheduling { }', "2: ensemble_scheduling: an ensemble has platform"),
    ("ensemble_scheduling { step { } } platform: 'openvino'", "1: ensemble_scheduling: an ensemble has platform"),
    (
        "platform: 'ensemble'\nensemble_scheduling { step { model_name: 'a'\n model_namespace: 'b' } }",
        "3: ensemble_scheduling.step[0].model_namespace: there is one repository here; take it out",
    ),
    ("model_transaction_policy { decoupled: true }", "1: model_transaction_policy: each request has one answer here"),
    (f"input {{ {TENSOR} }}\ninput {{ {TENSOR}\n  allow_ragged_batch: true }}", "3: input[1].allow_ragged_batch: rag"),
    (f"input {{ {TENSOR} is_non_linear_format_io: true }}", "1: input[0].is_non_linear_format_io: only plans"),
    (f"input {{ {TENSOR} dims: 6\n reshape {{ shape: 5 }} }}", "2: input[0].reshape: [5] has other elements than dims"),
    (f"input {{ {TENSOR} dims: [ -1, -1 ] reshape {{ shape: -1 }} }}", "1: input[0].reshape: [-1] has other elements"),
    ("input { data_type: TYPE_FP32 }", "1: input[0]: has no name; write that of the file"),
    (f"input {{ {TENSOR} dims: -2 }}", "1: input: should be greater than or equal to -1"),
    ("batch_input [ { kind: BATCH_ELEMENT_COUNT } ]", "1: batch_input[0]: ragged batching isn't supported"),
    ("batch_output { }", "1: batch_output[0]: ragged batching isn't supported"),
    ("max_batch_size: many", "1: not a model configuration in protobuf's text format"),
    ("max_batch_size: -1", "1: max_batch_size: should be at least 0"),
    ("max_batch_sise: 1", "1: max_batch_sise: unknown field; did you mean 'max_batch_size'?"),
    (
        "dynamic_batching {\n  preferred_batch_sizes: 4 }",
        "2: dynamic_batching.preferred_batch_sizes: unknown field; did",
    ),
    ("input [ { nane: 'a' } ]", "1: input[0].nane: unknown field; did you mean 'name'?"),
    (
        'parameters { key: "intra_op_thread_count" value: { string_value: "' + 5000 * "1" + '" } }',
        "1: parameters['intra_op_thread_count']: should be a number, not '1111",
    ),
    ('\n\ndefault_model_filename: "net.onnx"', "3: default_model_filename: is 'net.onnx'; call the file model.onnx"),
    ("instance_group [ { gpus: [ 0, 1 ] } ]", "1: instance_group[0]: models can't be spread over GPUs"),
    ("instance_group { passive: true }", "1: instance_group[0].passive: would run no request"),
    ("instance_group { secondary_devices { } }", "1: instance_group[0].secondary_devices[0]: there are none here"),
    ("instance_group { count: 5000 }", "1: instance_group: should be less than or equal to 4096"),
    ("version_policy { specific { versions: 0 } }", "1: version_policy: should be greater than or equal to 1"),
    (
        "max_batch_size: 4\ndynamic_batching { preferred_batch_size: 9 }",
        "2: dynamic_batching.preferred_batch_size: 9 is more than max_batch_size (4)",
    ),
    (
        "max_batch_size: 4 dynamic_batching { priority_queue_policy { key: 1 value { } } }",
        "1: dynamic_batching.priority_queue_policy[1]: one policy holds for all priorities",
    ),
    (
        'model_warmup { inputs { key: "a" value: { input_data_file: "f" } } }',
        "1: model_warmup[0].inputs['a']: files can't be read here; use zero_data or random_data",
    ),
    ("model_repository_agents { }", "1: model_repository_agents: nothing changes files on their way here"),
    (
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "auto_io_binding" } } }',
        "1: optimization.execution_accelerators.gpu_execution_accelerator[0]: there is no 'auto_io_binding' here",
    ),
    (
        'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" parameters '
        '{ key: "precision_mode" value: "INT8" } } } }',
        "gpu_execution_accelerator[0]: precision_mode is 'INT8'; there are FP32, FP16, BF16",
    ),
]


@pytest.mark.parametrize(("text", "value", "expected"), FOLLOWED)
def test_it_is_followed(text: str, value: Callable[[ModelConfig], Any], expected: object, read: Read) -> None:
    assert value(read(text)) == expected


@pytest.mark.parametrize(("text", "line"), LOGGED)
def test_what_answers_do_not_depend_on_is_logged_with_its_line(
    text: str, line: str, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        read(text)

    assert line in caplog.text


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_what_cannot_be_done_is_refused_with_its_line(text: str, line: str, read: Read) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)

    assert line in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "input {",
        'name: "',
        "input [ {} ",
        "a { b { c",
        5000 * "a {",
        200 * "zzz {" + 200 * "}" + "}",
        3000 * "zzz {" + 3000 * "}",
        "max_batch_size: 1 }",
    ],
)
def test_text_that_ends_early_is_refused(text: str, read: Read) -> None:
    with pytest.raises(ConfigError, match=r"not a model configuration|nested too deep"):
        read(text)
