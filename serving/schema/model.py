"""The section of servable.yaml that describes one model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field, PositiveInt

from trtnode.engines.backends.names import (
    AskedPrecision,
    EngineName,
    NanAnswer,
    PrecisionName,
    RewriteName,
    TargetName,
    rewrite_problem,
    target_problem,
)
from trtnode.engines.backends.shape_range import ShapeRange
from trtnode.serving.schema.fields import CalibrationSource, ConfigPath, ListOf, Section
from trtnode.serving.schema.pipeline import Postprocess, Preprocess
from trtnode.serving.schema.scaling import ScalingConfig

Sizes = ListOf[int]
_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


def _check_target(name: object) -> object:
    """Say where engines for a GPU are built that is no target."""
    if isinstance(name, str) and (problem := target_problem(name)):
        raise ValueError(problem)
    return name


def _check_rewrite(name: object) -> object:
    """Name the rewrites that there are."""
    if problem := rewrite_problem(name):
        raise ValueError(problem)
    return name


Rewrite = Annotated[RewriteName, pydantic.BeforeValidator(_check_rewrite)]
Target = Annotated[TargetName, pydantic.BeforeValidator(_check_target)]


class LatestVersions(Section):
    """Serve the versions with the highest numbers."""

    latest: PositiveInt = 1
    """The number of them."""


class PrecisionRuleConfig(Section):
    """Another precision for some nodes."""

    node: str | None = None
    """Glob over node names."""
    op: str | None = None
    """Operator name."""
    precision: PrecisionName
    """The precision of these nodes."""

    @pydantic.model_validator(mode="after")
    def _check_wish(self) -> Self:
        """A rule about all nodes would be a precision."""
        if self.node is None and self.op is None:
            raise ValueError("should have a key 'node' or 'op' that says which nodes it is about")
        return self


class CalibrationConfig(Section):
    """The source of INT8 ranges."""

    data: CalibrationSource | None = None
    """Samples of the inputs: an .npz file, a folder of them, or module:function."""
    ranges: ConfigPath | None = None
    """Ranges that were measured before (JSON)."""
    method: str = "mean"
    """The method that makes ranges: mean, minmax, moving-average, entropy, percentile, or an installed method."""
    samples: PositiveInt = 200
    """The number of samples to use."""
    allow_few_samples: bool = False
    """True if fewer than 8 samples may do; the accuracy budget then says little."""


class BudgetConfig(Section):
    """The distance that answers may move from FP32 before a precision is given up."""

    min_cosine: float | None = Field(default=None, ge=-1, le=1)
    """Smallest cosine similarity of any output."""
    min_top1_agreement: float | None = Field(default=None, ge=0, le=1)
    """Smallest share of samples whose best class stays."""
    max_abs: float | None = Field(default=None, ge=0)
    """Largest absolute difference of any element."""
    metric: str | None = None
    """A measure of your own, as module:function; at least 0 is good enough."""


class PartitionConfig(Section):
    """The nodes that an engine may take."""

    native_ops: ListOf[str] = ()
    """Operators that stay native."""
    native_nodes: ListOf[str] = ()
    """Globs over the names of nodes that stay native."""
    engine_ops: ListOf[str] = ()
    """Operators that engines may take; empty for all that they support."""
    min_segment_nodes: PositiveInt = 1
    """Segments with fewer nodes stay native."""
    max_segments: PositiveInt | None = None
    """Most segments to build, those with the greatest estimated benefit; null for no limit."""
    connected: bool = False
    """True if each segment is one connected part of the graph, rather than as few segments as possible."""
    freeze_initializers: bool = False
    """Make constants of initializers that are also graph inputs; a request that sends one is refused."""


class ProfileConfig(Section):
    """Shapes of one input."""

    values: bool = False
    """True if these are the values of an input that holds sizes, such as the shape of a Reshape."""
    min: Sizes
    """Smallest."""
    opt: Sizes
    """Most frequent."""
    max: Sizes
    """Largest."""

    def shape_range(self) -> ShapeRange:
        """Return them as the engines take them, not checked."""
        return ShapeRange(low=self.min, best=self.opt, high=self.max, values=self.values)


MOST_WARM_SIZES = 16
"""Up to this many rows, every batch size is run before the first request; above, only the likely ones."""


class BatchingConfig(Section):
    """Joins requests on axis 0."""

    max_batch_size: PositiveInt = 16
    """Most rows of one execution."""
    max_queue_delay_us: int = Field(default=500, ge=0)
    """Longest wait for more requests, in microseconds."""
    preferred_batch_sizes: ListOf[PositiveInt] = ()
    """Sizes that run at once when reached."""
    max_queue_size: PositiveInt = 256
    """Requests that may wait; further ones are refused."""
    timeout_ms: PositiveInt | None = None
    """Longest time in the queue, in milliseconds."""
    priority_levels: PositiveInt = 1
    """Number of priorities that requests may name."""
    adaptive: bool = False
    """Choose delay and batch size from measured times."""
    latency_target_ms: float | None = Field(default=None, gt=0)
    """The bound of adaptive batching on the 99th percentile, in milliseconds."""

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
        if self.adaptive and self.latency_target_ms is None:
            yield "adaptive", "needs a target; add latency_target_ms"
        if self.latency_target_ms is not None and not self.adaptive:
            yield "latency_target_ms", "has no effect without adaptive: true; add it or leave this out"


class TensorConfig(Section):
    """An input or output, as clients see it."""

    datatype: str
    """Its type in the protocol: FP32, INT64, BYTES, ..."""
    shape: Sizes
    """Its shape, with -1 for a dimension that may vary."""


class InterfaceConfig(Section):
    """Inputs and outputs that clients rely on."""

    inputs: dict[str, TensorConfig] = Field(default_factory=dict)
    """All inputs without a default, by name; empty for no check."""
    outputs: dict[str, TensorConfig] = Field(default_factory=dict)
    """Outputs, by name."""


class VariantConfig(Section):
    """One of several files of a model, which differ in quality and speed."""

    path: ConfigPath
    """Its ONNX or compiled file, or a folder with a numbered folder for each version, as `path` of a model."""
    quality: float = Field(allow_inf_nan=False)
    """A number that is greater for better answers, such as its accuracy."""
    name: str | None = None
    """Its name in responses, metrics and logs; null for that of its file, without `.onnx`, or of its folder."""

    @property
    def label(self) -> str:
        """Its name."""
        return self.name or self.path.name.removesuffix(".onnx")


class TensorRtConfig(Section):
    """Options of TensorRT's builder."""

    workspace_mb: PositiveInt | None = None
    """Scratch memory; null for all there is."""
    optimization_level: int = Field(default=3, ge=0, le=5)
    """The effort of the builder's search, from 0 to 5."""
    hardware_compatible: bool = False
    """Build for other GPU generations too."""
    version_compatible: bool = False
    """Build for later TensorRT releases too."""
    sparse: bool = False
    """Use structured sparsity."""
    cuda_graphs: bool = True
    """Replay executions as CUDA graphs."""
    strip_plan: bool = False
    """Build engines without weights; they get those of the nodes that they replace when they are loaded."""
    targets: ListOf[Target] = ()
    """GPUs that tensorrt-rtx builds for, such as sm86 and sm89; empty for every one from Ampere on."""
    build_timeout_s: PositiveInt = 1800
    """When a build is given up, in seconds."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the fault of each setting that contradicts another one."""
        if self.strip_plan and self.version_compatible:
            yield "strip_plan", "later releases can't give an engine its weights; leave out version_compatible or this"


class ModelConfig(Section):
    """One model to serve."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={"required": ["name"], "anyOf": [{"required": ["path"]}, {"required": ["variants"]}]}
    )

    name: str
    """Its name in requests: letters, digits, '.', '_' and '-'."""
    path: ConfigPath
    """An ONNX file, one that `trtnode compile` wrote, or a folder with a numbered folder for each version."""
    variants: ListOf[VariantConfig] = ()
    """Files of one interface instead of `path`: the best quality that holds `latency_target_ms` answers."""
    latency_target_ms: float | None = Field(default=None, gt=0)
    """The time that the chosen variant may take at the configured number of instances and batch size."""
    step_down: bool = False
    """True lets faster variants answer while more than 5 % of the requests take longer than the target."""
    versions: LatestVersions | Literal["all"] | ListOf[PositiveInt] = LatestVersions()
    """The version folders to serve: {latest: n}, all, or a list of numbers."""
    interface: InterfaceConfig | None = None
    """Inputs and outputs that the model must have: a file with others is not loaded. null takes any."""
    watch: bool = False
    """Load new and changed versions as they appear on disk, and retire those that go."""
    required: bool = True
    """True if the server needs it: it isn't ready before the model is, and stops if it can't be loaded."""
    engine: EngineName = "auto"
    """The engine of the nodes that it supports; native runs all nodes in ONNX Runtime."""
    precision: AskedPrecision = "fp32"
    """Precision that engines compute in; auto takes the fastest that stays inside the budget."""
    precision_rules: ListOf[PrecisionRuleConfig] = ()
    """Exceptions from `precision`, the first one that fits a node counts."""
    calibration: CalibrationConfig | None = None
    """The source of INT8 ranges."""
    budget: BudgetConfig | None = None
    """The distance that answers may move from FP32; by default min_cosine is 0.99, of classifiers 0.995."""
    approximate: bool = False
    """Approximate GELU, SiLU and sigmoid where that is measured to pay, inside the budget."""
    measure: bool = True
    """Measure for up to 10 s when the model is compiled, and keep engines that make it faster; without, estimate."""
    tune: bool = False
    """Measure longer, and more choices of engines."""
    nan: NanAnswer | None = None
    """The answer to requests with NaN or infinity in their inputs: engine answers them too, and may lose NaN. Without
    this key, it is the one that the model was compiled with: native, unless compiled with ``--nan engine``."""
    optimize: dict[Rewrite, bool] = Field(default_factory=dict)
    """Equal rewrites of the graph, by name: false leaves one out. `trtnode explain` names those that it would get."""
    partition: PartitionConfig = PartitionConfig()
    """The nodes that an engine may take."""
    reference: bool = False
    """True runs nodes without any kernel in onnx.reference: slowly, in a process of their own."""
    shapes: ListOf[dict[str, ProfileConfig]] = ()
    """Shapes that TensorRT builds for, or values of inputs that hold sizes; requests of others run natively."""
    batching: BatchingConfig | None = None
    """Joins requests on axis 0; null runs them one by one."""
    instances: PositiveInt = 1
    """Executions at the same time. Engines of OpenVINO take turns with all cores unless ``threads`` leaves some."""
    threads: PositiveInt | None = None
    """Threads of one execution; null lets the engine choose, or divides the cores among several workers."""
    warmup: int = Field(default=2, ge=0)
    """Executions before the model is ready; unless 0, likely batch sizes are executed once on zeros, too."""
    warmup_inputs: ConfigPath | None = None
    """Inputs of its runs (.npz), on which it must succeed to be served; null for zeros, on which it may fail."""
    preprocess: Preprocess = ()
    """Building blocks or ONNX files in front of the model, in order."""
    postprocess: Postprocess = ()
    """Building blocks or ONNX files behind the model, in order."""
    tensorrt: TensorRtConfig = TensorRtConfig()
    """Options of TensorRT's builder."""
    scaling: ScalingConfig | None = None
    """Replicas on a Ray cluster; only with `--on ray`, which gives a model without this section one replica."""

    @property
    def has_pipeline(self) -> bool:
        """True if a stage stands before or after the model."""
        return bool(self.preprocess or self.postprocess)

    def of_variant(self, variant: VariantConfig) -> ModelConfig:
        """Return the configuration of one variant as a model by itself."""
        return self.model_copy(update={"path": variant.path, "variants": ()})

    def best_variant(self) -> tuple[VariantConfig, ...]:
        """Return the variant of the best quality; none if there are none."""
        return (max(self.variants, key=lambda one: one.quality),) if self.variants else ()

    def variant_problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the place and the fault of each setting of variants that contradicts another one."""
        if not self.variants:
            for key in ("latency_target_ms", "step_down"):
                if getattr(self, key):
                    yield (key,), "has no effect without variants; add them or leave this out"
        elif self.latency_target_ms is None:
            yield ("latency_target_ms",), "is missing; variants need the time that they should hold, in milliseconds"
        first_with: dict[str, int] = {}
        for index, one in enumerate(self.variants):
            first = first_with.setdefault(one.label, index)
            if first != index:
                yield ("variants", index, "name"), f"variants[{first}] is called {one.label!r} too; name one otherwise"

    @pydantic.model_validator(mode="before")
    @classmethod
    def _take_path(cls, data: object) -> object:
        """Take the place of the model from its variants."""
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
