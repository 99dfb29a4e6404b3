"""The section of servable.yaml that describes one model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pydantic
import pydantic_core
from pydantic import Field

from trtnode.engines.backends.names import NanAnswer
from trtnode.engines.build.options import CompileOptions
from trtnode.partitioner.options import LARGEST_SIZE, declared
from trtnode.serving.schema.fields import (
    LONGEST_MS,
    LONGEST_S,
    Axis,
    ConfigPath,
    Cores,
    Count,
    Finite,
    ListOf,
    Milliseconds,
    Rows,
    Section,
    Size,
    VersionNumber,
)
from trtnode.serving.schema.options import section_of
from trtnode.serving.schema.pipeline import Postprocess, Preprocess, PreprocessConfig
from trtnode.serving.schema.sequences import SequencesConfig, StateConfig
from trtnode.serving.schema.text import TextConfig

OPTIONS = "options"
"""The field of a model that holds the keys that are options of its compilation."""

_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


class LatestVersions(Section):
    """Serve the versions with the highest numbers."""

    latest: Count = 1
    """The number of them."""


MOST_WARM_SIZES = 16
"""Up to this many rows, every batch size is run before the first request; above, only the likely ones."""


class BatchingConfig(Section):
    """Joins requests on axis 0."""

    max_batch_size: Rows = 16
    """Most rows of one execution."""
    max_batch_tokens: Count | None = None
    """Most rows times padded length of one execution of several rows, with ``lengths``; null bounds rows alone."""
    max_queue_delay_us: int = Field(default=500, ge=0, le=60_000_000)
    """Longest wait for more requests, in microseconds."""
    preferred_batch_sizes: ListOf[Rows] = ()
    """Sizes that run at once when reached."""
    max_queue_size: Count = 256
    """Requests that may wait; further ones are refused."""
    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST_MS)] | None = None
    """Longest time in the queue, in milliseconds."""
    priority_levels: Cores = 1
    """Number of priorities that requests may name."""
    _own_timeout: bool = pydantic.PrivateAttr(False)

    def keep_own_timeout(self, *, always: bool) -> None:
        """Note whether requests may shorten ``timeout_ms``."""
        self._own_timeout = always

    @property
    def own_timeout(self) -> bool:
        """True if the timeout of a request has no effect."""
        return self._own_timeout

    def warm_sizes(self) -> list[int]:
        """Return the batch sizes above one row to run once before the first request.

        An engine prepares itself anew for each size that it meets for the first time. Padding to fewer sizes would cost
        more at each execution.
        """
        if self.max_batch_size <= MOST_WARM_SIZES:
            return list(range(2, self.max_batch_size + 1))
        powers = (1 << n for n in range(1, self.max_batch_size.bit_length()))
        return sorted({self.max_batch_size, *(self.preferred_batch_sizes or powers)} - {1})

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the fault of each setting that contradicts another one."""
        for size in self.preferred_batch_sizes:
            if size > self.max_batch_size:
                text = f"{size} is more than max_batch_size ({self.max_batch_size}); leave it out or raise that"
                yield "preferred_batch_sizes", text


class LengthsConfig(Section):
    """Axes whose size differs between requests, which are padded to few sizes."""

    axes: Annotated[dict[str, Axis], Field(min_length=1)]
    """The axis of each input that has the length, by name."""
    mask: str | None = None
    """The input that is 0 where there is padding; null for a model without one."""
    buckets: Annotated[ListOf[Count], Field(min_length=1)]
    """The lengths that requests are padded to, in ascending order."""
    pad: dict[str, Finite] = Field(default_factory=dict)
    """The padding of inputs, by name; 0 if not named."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the fault of each setting that contradicts another one."""
        if self.mask is not None and self.mask not in self.axes:
            yield "mask", f"{self.mask!r} is none of the inputs in axes; add it there"
        for name in self.pad.keys() - self.axes.keys():
            yield "pad", f"{name!r} is none of the inputs in axes; add it there or leave it out"
        if self.mask is not None and self.pad.get(self.mask):
            yield "pad", f"{self.mask!r} is the mask, which is 0 where there is padding; leave it out"
        if list(self.buckets) != sorted(set(self.buckets)):
            yield "buckets", "should ascend; put them in order"


class TensorConfig(Section):
    """An input or output, as clients see it."""

    datatype: str | None = None
    """Its type in the protocol: FP32, INT64, BYTES, ...; null takes that of the file."""
    shape: ListOf[Size] | None = None
    """Its shape, with -1 for a dimension that the file decides; null takes that of the file."""
    _place: str = pydantic.PrivateAttr("")

    @property
    def place(self) -> str:
        """The file and line that say so; empty where that isn't known."""
        return self._place

    def stands_at(self, place: str) -> None:
        """Note the file and line that say so."""
        self._place = place


class InterfaceConfig(Section):
    """Inputs and outputs that clients see. Sizes that the file leaves open are those given here."""

    inputs: dict[str, TensorConfig] = Field(default_factory=dict)
    """The inputs, by name, with all that have no default; empty for those of the file."""
    outputs: dict[str, TensorConfig] = Field(default_factory=dict)
    """The outputs, by name; others are not there. Empty for those of the file."""


class VariantConfig(Section):
    """One of several files of a model, which differ in quality and speed."""

    path: ConfigPath
    """Its ONNX or compiled file, or a folder with a numbered folder for each version, as `path` of a model."""
    quality: Finite
    """A number that is greater for better answers, such as its accuracy."""
    name: str | None = None
    """Its name in responses, metrics and logs; null for that of its file, without `.onnx`, or of its folder."""

    @property
    def label(self) -> str:
        """Its name."""
        return self.name or self.path.name.removesuffix(".onnx")


class ScalingConfig(Section):
    """Replicas of a model on a Ray cluster."""

    replicas: Cores = 1
    """The number of replicas, each in a process of its own; with `max`, the number to begin with."""
    min: Cores | None = None
    """The least number, where requests decide; null for `replicas`."""
    max: Cores | None = None
    """The greatest number, where requests decide; null for always `replicas`."""
    target_ongoing_requests: float = Field(default=2, gt=0, le=1e6, allow_inf_nan=False)
    """Requests in a replica at a time, on average, that the number of replicas follows."""
    upscale_delay_s: float = Field(default=30, ge=0, le=LONGEST_S, allow_inf_nan=False)
    """The time for which requests ask for more replicas before there are more."""
    downscale_delay_s: float = Field(default=600, ge=0, le=LONGEST_S, allow_inf_nan=False)
    """The time for which requests ask for fewer replicas before there are fewer."""
    cpus: float = Field(default=1, ge=0, le=4096, allow_inf_nan=False)
    """Cores that Ray reserves for a replica, and threads of one execution unless `threads` says otherwise."""
    gpus: float = Field(default=0, ge=0, le=4096, allow_inf_nan=False)
    """GPUs that Ray reserves for a replica."""

    @property
    def least(self) -> int:
        """The number of replicas that are always there."""
        return self.replicas if self.max is None or self.min is None else self.min

    @property
    def most(self) -> int:
        """The number of replicas that there are at most."""
        return self.max or self.replicas

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the fault of each setting that contradicts another one."""
        if self.min is not None and self.max is None:
            yield "min", "has no effect without max; add it or leave this out"
        elif self.least > self.replicas:
            yield "min", f"is more than replicas ({self.replicas}); raise that or lower this"
        elif self.most < self.replicas:
            yield "max", f"is less than replicas ({self.replicas}); lower that or raise this"


class StepConfig(Section):
    """One run of a model in an ensemble."""

    model: str
    """The name of another model of this server; it may be an ensemble, too."""
    version: int = Field(default=-1, ge=-1, le=LARGEST_SIZE)
    """The version of that model; -1 for the newest that is served."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """The tensor of the ensemble for each input of the model, by name: one of a request, or of another step."""
    outputs: dict[str, str] = Field(default_factory=dict)
    """The name among the tensors of the ensemble for each output of the model that is used."""
    _member: ModelConfig | None = pydantic.PrivateAttr(None)

    @property
    def member(self) -> ModelConfig | None:
        """The configuration of that model; None where there is none."""
        return self._member

    def running(self, member: ModelConfig | None) -> StepConfig:
        """Return this step with the configuration of its model."""
        step = self.model_copy()
        step._member = member
        return step


class ModelConfig(Section):
    """One model to serve."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "required": ["name"],
            "anyOf": [{"required": ["path"]}, {"required": ["variants"]}, {"required": ["ensemble"]}],
        }
    )

    name: str
    """Its name in requests: letters, digits, '.', '_' and '-'."""
    path: ConfigPath
    """An ONNX file, one that `trtnode compile` wrote, or a folder with a numbered folder for each version, or that of a
    model of text, with config.json."""
    file: str | None = None
    """The ONNX file of a folder as sentence-transformers or optimum saves it, such as onnx/model_O2.onnx; null for
    model.onnx, or onnx/model.onnx."""
    variants: ListOf[VariantConfig] = ()
    """Files of one interface instead of `path`: the best quality that holds `latency_target_ms` answers."""
    ensemble: ListOf[StepConfig] = ()
    """Models that hand tensors on to each other, instead of a file: they are merged and served as one model."""
    latency_target_ms: Milliseconds | None = None
    """The time that the chosen variant may take at the configured number of instances and batch size."""
    versions: LatestVersions | Literal["all"] | ListOf[VersionNumber] = LatestVersions()
    """The version folders to serve: {latest: n}, all, or a list of numbers."""
    interface: InterfaceConfig | None = None
    """Inputs and outputs that clients see: a file that contradicts them is not loaded. null takes those of the file."""
    watch: bool = False
    """Load new and changed versions as they appear on disk, and retire those that go."""
    required: bool = True
    """True if the server needs it: it isn't ready before the model is, and stops if it can't be loaded. Where it isn't
    required, its files may come later."""
    options: Annotated[
        CompileOptions,
        pydantic.GetPydanticSchema(lambda kind, handler: handler.generate_schema(section_of(kind))),
    ] = Field(default_factory=CompileOptions)
    """Options of its compilation. They are keys of the model itself."""
    nan: NanAnswer | None = None
    """The answer to requests with NaN or infinity in their inputs: engine answers them too, and may lose NaN. Without
    this key, it is the one that the model was compiled with: native, unless compiled with ``--nan engine``."""
    batching: BatchingConfig | None = None
    """Joins requests on axis 0; null runs them one by one."""
    lengths: Literal["auto"] | LengthsConfig | None = None
    """Pads requests of unlike lengths to few lengths, so that they share batches; only if the answers don't depend on
    padding, which is tried at load. auto finds the axes by their name, the mask, and buckets; null pads nothing."""
    state: Annotated[Literal["auto"] | ListOf[StateConfig], Field(union_mode="left_to_right")] | None = None
    """State that the server keeps from one request of a sequence to the next: auto finds inputs and outputs by the
    names that exporters give, else a list of pairs; null for a model without."""
    sequences: SequencesConfig = Field(default_factory=SequencesConfig)
    """Sequences of a model with `state`: their bounds, and what they append."""
    instances: Cores = 1
    """Executions at the same time. Engines of OpenVINO take turns with all cores unless ``threads`` leaves some."""
    threads: Cores | None = None
    """Threads of one execution; null lets the engine choose, or divides the cores among several workers."""
    warmup: int = Field(default=2, ge=0, le=10_000)
    """Executions before the model is ready; unless 0, likely batch sizes are executed once on zeros, too."""
    warmup_inputs: ConfigPath | None = None
    """Inputs of its runs (.npz), on which it must succeed to be served; null for zeros, on which it may fail."""
    preprocess: Preprocess = ()
    """Building blocks or ONNX files in front of the model, in order."""
    postprocess: Postprocess = ()
    """Building blocks or ONNX files behind the model, in order."""
    text: TextConfig | None = None
    """Prompts, task and labels of a model that tokenizes."""
    scaling: ScalingConfig | None = None
    """Replicas on a Ray cluster; only with `--on ray`, which gives a model without this section one replica."""

    _origin: bytes = pydantic.PrivateAttr(b"")

    def came_from(self, origin: bytes) -> None:
        """Note the configuration of Triton, serialized, that this section was made of."""
        self._origin = origin

    @property
    def origin(self) -> bytes:
        """The configuration of Triton that it was made of; empty if it stands in servable.yaml."""
        return self._origin

    @property
    def has_pipeline(self) -> bool:
        """True if what is served is made of more than one file: of steps, or stages that become nodes of the model."""
        return bool(self.postprocess or self.ensemble) or any(
            not isinstance(stage, PreprocessConfig) or stage.tokenize is None for stage in self.preprocess
        )

    def with_members(self, models: Mapping[str, ModelConfig]) -> ModelConfig:
        """Return an ensemble with the configurations of its models, and with their libraries."""
        steps = [step.running(models.get(step.model, step.member)) for step in self.ensemble]
        members = [step.member for step in steps if step.member is not None]
        libraries = (one for model in (self, *members) for one in model.options.custom_op_libraries)
        options = dataclasses.replace(self.options, custom_op_libraries=tuple(dict.fromkeys(libraries)))
        return self.model_copy(update={"ensemble": tuple(steps), OPTIONS: options})

    def of_variant(self, variant: VariantConfig) -> ModelConfig:
        """Return the configuration of one variant as a model by itself."""
        return self.model_copy(update={"path": variant.path, "variants": ()})

    def best_variant(self) -> tuple[VariantConfig, ...]:
        """Return the variant of the best quality; none if there are none."""
        return (max(self.variants, key=lambda one: one.quality),) if self.variants else ()

    def variant_problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the place and the fault of each setting of variants that contradicts another one."""
        if not self.variants:
            if self.latency_target_ms is not None:
                yield ("latency_target_ms",), "has no effect without variants; add them or leave this out"
        elif self.latency_target_ms is None:
            yield ("latency_target_ms",), "is missing; variants need the time that they should hold, in milliseconds"
        first_with: dict[str, int] = {}
        for index, one in enumerate(self.variants):
            first = first_with.setdefault(one.label, index)
            if first != index:
                yield ("variants", index, "name"), f"variants[{first}] is called {one.label!r} too; name one otherwise"

    @pydantic.model_validator(mode="before")
    @classmethod
    def _gather_options(cls, data: object) -> object:
        """Read the keys that are options of the compilation as one section."""
        if not isinstance(data, Mapping) or isinstance(data.get(OPTIONS), CompileOptions):
            return data
        if OPTIONS in data:
            raise ValueError(f"has no key {OPTIONS!r}; write its keys in the model itself")
        keys = dict(data)
        options = {
            one.field.name: keys.pop(one.field.name) for one in declared(CompileOptions) if one.field.name in keys
        }
        for section in ("calibration", "budget"):
            if options.get(section, options) is None:
                del options[section]
        return {**keys, OPTIONS: options}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: pydantic_core.CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Show the keys as they are written."""
        schema = handler(core_schema)
        keys = handler.resolve_ref_schema(schema)["properties"]
        keys |= handler.resolve_ref_schema(keys.pop(OPTIONS))["properties"]
        return schema

    @pydantic.model_validator(mode="before")
    @classmethod
    def _take_path(cls, data: object) -> object:
        """Take the place of the model from its variants; that of an ensemble, a folder of its name, need not exist."""
        if isinstance(data, Mapping) and data.get("ensemble") and "variants" not in data:
            return {"path": data.get("name", ""), **data}
        variants = data.get("variants") if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or not variants:
            return data
        if "path" in data:
            raise ValueError("should have path or variants, which name files too, but not both")
        first = variants[0] if isinstance(variants, list | tuple) else None
        return {**data, "path": first["path"]} if isinstance(first, Mapping) and "path" in first else data

    @pydantic.field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        """Keep names out of trouble in URLs, metric labels and file names."""
        if not _NAME.fullmatch(name):
            raise ValueError("should be letters, digits, '.', '_' and '-', without '..', and not start with '.' or '-'")
        return name
