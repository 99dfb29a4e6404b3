"""Turns the stages that servable.yaml puts around a model into one ONNX model."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir

from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.errors import PartitionError, PipelineError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.regular_files import read_regular
from trtnode.partitioner.pipelines import blocks, token_blocks
from trtnode.partitioner.pipelines.chaining import DEFAULT_SOURCE, Keep, Source, Stage, chain_stages
from trtnode.partitioner.pipelines.ensembles import Step, merge_steps
from trtnode.partitioner.pipelines.node_writer import Layout
from trtnode.partitioner.pipelines.stage_models import KeyPath, load_stage
from trtnode.serving.errors import TextModelError
from trtnode.serving.models import image_decoder
from trtnode.serving.models.image_decoder import ImageDecoder
from trtnode.serving.models.version_files import choose_versions, file_of_step, find_files
from trtnode.serving.schema.model import InterfaceConfig, ModelConfig, StepConfig
from trtnode.serving.schema.pipeline import PostprocessConfig, PreprocessConfig, TilesConfig
from trtnode.serving.schema.text import TokenizeConfig
from trtnode.serving.text.dense_weights import dense_block
from trtnode.serving.text.sentence_folder import as_folder_says
from trtnode.serving.text.tokenizer import MISSING
from trtnode.serving.triton.conversion import triton_config
from trtnode.serving.triton.wire import shapes_of_clients


def chain_model(model: ModelConfig) -> onnx.ModelProto:
    """Chain the stages of a pipeline around a model, whose path is an ONNX file, or merge the steps of an ensemble.

    Raises:
        PipelineError: A stage can't be used, or doesn't fit the one before.
        PartitionError: The model can't be read.
    """
    return embed_engines(Graph.of(_chained(model, model.path)), (), {})


def pipeline_problem(model: ModelConfig) -> PipelineError | None:
    """Return what is wrong with the pipeline around some version of a model; None if all fit or can't be read."""
    for file in choose_versions(model, find_files(model)).values():
        try:
            whole, _ = as_folder_says(file.configured(model))
            for path in file.variants or (file.path,):
                if whole.preprocess or whole.has_pipeline:
                    _chained(whole, path)
        except TextModelError as error:
            return PipelineError(("path",), str(error).removesuffix("."))
        except PipelineError as error:
            return error if file.file is None else PipelineError(("path",), f"{model.path}: {error}")
        except PartitionError:
            continue  # the model itself is at fault, which its load reports
    return None


def image_decoders(model: ModelConfig, first_input: str) -> dict[str, ImageDecoder]:
    """Return what decodes images, by input.

    Args:
        model: How the model is served.
        first_input: Name of the pipeline's first input, for which a stage is that names none.
    """
    return {
        stage.tensor or first_input: ImageDecoder(**dict(stage.decode))
        for stage in model.preprocess
        if isinstance(stage, PreprocessConfig) and stage.decode is not None
    }


@dataclasses.dataclass(frozen=True, slots=True)
class TilesStage:
    """The stage that makes tiles of images.

    Attributes:
        config: Its settings.
        index: Its place among the stages.
        layout: That of images in requests.
    """

    config: TilesConfig
    index: int
    layout: Layout

    @property
    def place(self) -> KeyPath:
        """Its path in the configuration."""
        return ("preprocess", self.index, "tiles")


def is_graph(model: ModelConfig) -> bool:
    """Return whether a model is one graph, with its pipeline: no variants, no state, and no stage outside of it."""
    kinds = {stage.kind for stage in model.preprocess if isinstance(stage, PreprocessConfig)}
    return not model.variants and model.state is None and kinds.isdisjoint(("decode", "tiles", "tokenize"))


def tiles_of(model: ModelConfig) -> TilesStage | None:
    """Return the stage that makes tiles; None where images are whole."""
    stages = model.preprocess
    for index, stage in enumerate(stages):
        if isinstance(stage, PreprocessConfig) and stage.tiles is not None:
            first = stages[0] if isinstance(stages[0], PreprocessConfig) else stage
            alone = stage.tiles.layout if len(stages) == 1 else "nhwc"
            return TilesStage(stage.tiles, index, first.input.layout if first.input is not None else alone)
    return None


def _chained(model: ModelConfig, path: pathlib.Path) -> onnx_ir.Model:
    if model.ensemble:
        steps = [_ensemble_step(step, ("ensemble", index)) for index, step in enumerate(model.ensemble)]
        seen = model.interface or InterfaceConfig()
        return merge_steps(steps, seen.inputs, seen.outputs)
    before = list(_stages(model, "preprocess"))
    return chain_stages(path, _tiled(model, before), list(_stages(model, "postprocess")))


def _ensemble_step(step: StepConfig, place: KeyPath) -> Step:
    """Read the model of a step. One that has a pipeline, or is an ensemble, is merged by itself before."""
    member, file = step.member, file_of_step(step)
    if member is None or file is None:
        raise PipelineError((*place, "model"), f"the file of {step.model!r} is gone; put it back")
    try:
        model = _chained(member, file.path) if member.has_pipeline else load_stage(file.path, (*place, "model"))
    except PartitionError as error:
        text = error.problem if isinstance(error, PipelineError) and not member.has_pipeline else str(error)
        raise PipelineError((*place, "model"), f"{step.model!r} can't be used: {text}") from error
    return Step(
        place=place,
        name=step.model,
        model=model,
        file=None if member.has_pipeline else file.path,
        inputs=step.inputs,
        outputs=step.outputs,
        reshapes=shapes_of_clients(triton_config(member)),
    )


def _tiled(model: ModelConfig, before: list[Stage]) -> list[Stage]:
    """Let the stage that makes tiles be the source of all others: they and the model get tiles of a fixed size."""
    tiles = tiles_of(model)
    if tiles is None:
        return before
    source, others = before[0].step, before[tiles.index + 1 :]
    if tiles.index > 1 or not isinstance(source, Source):
        raise PipelineError(tiles.place, "should come first, or right behind decode or input; move it there")
    for stage in others:
        if isinstance(stage.step, blocks.CenterCrop):
            raise PipelineError(stage.place, "would cut the edges off each tile; leave it out")
    if len(source.shape) != 4:
        raise PipelineError(tiles.place, "takes images with four dimensions; correct the shape of input")
    if len(before) == 1:
        source = Source(None, (None,) * 4, tiles.layout)
    shape, height = list(source.shape), 1 if source.layout == "nhwc" else 2
    shape[0], shape[height : height + 2] = tiles.config.batch, tiles.config.size
    opened = dataclasses.replace(source, shape=tuple(shape))
    return [Stage(place=tiles.place, step=opened, tensor=before[0].tensor), *others]


def _stages(model: ModelConfig, key: str) -> Iterator[Stage]:
    for index, stage in enumerate(getattr(model, key)):
        if isinstance(stage, PreprocessConfig) and stage.tokenize is not None:
            _check_tokenizing(stage.tokenize, (key, index, "tokenize"))
        elif isinstance(stage, pathlib.Path):
            yield Stage(place=(key, index), step=stage)
        else:
            place = (key, index, stage.kind)
            yield Stage(place=place, step=_step(stage, place), tensor=stage.tensor)


def _check_tokenizing(setting: TokenizeConfig, place: KeyPath) -> None:
    """Refuse a stage of which no node is made, since it runs before requests are batched."""
    if place[1] != 0:
        raise PipelineError(place, "should be the first stage; move it there")
    if MISSING:
        raise PipelineError(place, MISSING)
    if not setting.file.is_file():
        raise PipelineError((*place, "file"), f"there is no file {setting.file}; correct the path")


def _step(stage: PreprocessConfig | PostprocessConfig, place: KeyPath) -> blocks.Block | Source | Keep:
    setting = getattr(stage, stage.kind)
    match stage.kind:
        case "decode":
            if image_decoder.MISSING:
                raise PipelineError(place, image_decoder.MISSING)
            return Source(onnx_ir.DataType.UINT8, (None, *(setting.size or (None, None)), setting.channels))
        case "input":
            sizes = tuple(None if size == -1 else size for size in setting.shape)
            return Source(_element_type(setting.type), sizes, setting.layout)
        case "tiles":
            return DEFAULT_SOURCE  # replaced, see ``_tiled``
        case "resize":
            return blocks.Resize(setting)
        case "center_crop":
            return blocks.CenterCrop(setting)
        case "color_order":
            return blocks.SwapColors()
        case "layout":
            return blocks.ChangeLayout(setting)
        case "normalize":
            return blocks.Normalize(setting.scale, setting.mean, setting.std)
        case "cast":
            return blocks.Cast(_element_type(setting))
        case "keep":
            return Keep(setting)
        case "pool":
            return token_blocks.Pool(setting.ways, setting.include_prompt)
        case "dense":
            return dense_block(setting, (*place, "file"))
        case "activation":
            return token_blocks.Activate(setting)
        case "l2_normalize":
            return token_blocks.UnitLength()
        case "softmax":
            return blocks.Softmax()
        case "top_k":
            return blocks.TopK(setting.k, _read_labels(setting.labels, (*place, "labels")) if setting.labels else ())
    raise AssertionError(f"the schema has a stage that nothing builds: {stage.kind}")


def _element_type(name: str) -> onnx_ir.DataType:
    return onnx_ir.DataType.from_numpy(np.dtype(name))


def _read_labels(path: pathlib.Path, place: KeyPath) -> tuple[str, ...]:
    try:
        labels = tuple(read_regular(path).decode("utf-8-sig").splitlines())
    except OSError as error:
        raise PipelineError(place, f"{path} can't be read ({error.strerror}); correct the path") from None
    except UnicodeDecodeError:
        raise PipelineError(place, f"{path} is not UTF-8; save the file as UTF-8") from None
    if not labels:
        raise PipelineError(place, f"{path} is empty; write the name of a class in each line")
    return labels
