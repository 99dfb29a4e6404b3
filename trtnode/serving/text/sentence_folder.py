"""A folder as sentence-transformers or optimum saves it, read as a section of servable.yaml would describe it.

Answers are to be those of sentence-transformers. What it can't follow is refused with its file and field. Whatever
Python there is beside the files never runs.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NoReturn, get_args

import pydantic

from trtnode.serving.errors import TextModelError
from trtnode.serving.schema.fields import ListOf
from trtnode.serving.schema.model import BatchingConfig, ModelConfig
from trtnode.serving.schema.pipeline import PostprocessConfig, PreprocessConfig
from trtnode.serving.schema.text import (
    Activation,
    DenseConfig,
    NoSettings,
    PoolConfig,
    Pooling,
    TextConfig,
    TokenizeConfig,
)
from trtnode.serving.text.folder_files import FolderFiles, JsonObject

CONFIG, MODULES, SENTENCE = "config.json", "modules.json", "config_sentence_transformers.json"

MODEL_FILES = ("model.onnx", "onnx/model.onnx")
"""Places of the ONNX file, the first that there is. Others, such as quantized ones, are never taken by themselves."""

TOKEN_OUTPUTS = ("token_embeddings", "last_hidden_state")
POOLED_OUTPUTS = (*TOKEN_OUTPUTS, "sentence_embedding")
"""The last one is taken only where an export has no vectors of tokens."""

LENGTH_FILES = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]

OFFSET_FAMILY = ("camembert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl")
"""Model types whose first position is that behind the padding token's number."""

USUAL_LENGTH = 512

SHOWN = ("preprocess", "postprocess", "text")
"""Keys of servable.yaml that stand for the folder, which the log shows."""

ACTIVATIONS: dict[str, Activation | None] = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
}

ACTIVATION, OLD_ACTIVATION = "activation_fn", "sbert_ce_default_activation_function"

Side = Literal["right", "left"]
Mode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def _activation(name: object) -> Activation | None:
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(f"should be one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _content(token: object) -> object:
    """Return a token that stands there as text, or as an object with its text."""
    return token.get("content") if isinstance(token, Mapping) else token


def _listed(modes: object) -> object:
    return [modes] if isinstance(modes, str) else modes


Function = Annotated[Any, pydantic.BeforeValidator(_activation)]


class _Scores(JsonObject):
    activation_fn: Function = None


class _Config(JsonObject):
    architectures: ListOf[str] = ()
    model_type: str = ""
    max_position_embeddings: int | None = None
    pad_token_id: int = 0
    is_causal: bool = True
    id2label: dict[str, str] = pydantic.Field(default_factory=dict)
    num_labels: int = 2
    sentence_transformers: _Scores = _Scores()
    sbert_ce_default_activation_function: Function = None


class _Sentence(_Scores):
    model_type: Literal["SentenceTransformer", "CrossEncoder"] = "SentenceTransformer"
    prompts: dict[str, str] = pydantic.Field(default_factory=dict)
    default_prompt_name: str | None = None


class _TokenizerConfig(JsonObject):
    model_max_length: float | None = None
    padding_side: Side = "right"
    truncation_side: Side = "right"
    pad_token: Annotated[str | None, pydantic.BeforeValidator(_content)] = None


class _Lengths(JsonObject):
    max_seq_length: int | None = None
    do_lower_case: bool = False


class _Module(JsonObject):
    path: str = ""
    type: str


class _Pooling(JsonObject):
    pooling_mode: Annotated[ListOf[Mode], pydantic.BeforeValidator(_listed)] = ()
    include_prompt: bool = True
    # The older form; several are put one behind the other in this order.
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False

    def stage(self) -> PostprocessConfig:
        old = zip(list(_Pooling.model_fields)[2:], get_args(Pooling), strict=True)
        named = self.pooling_mode or [way for field, way in old if getattr(self, field)] or ["mean"]
        ways: Any = tuple(way.removesuffix("_tokens") for way in named)
        return PostprocessConfig(pool=PoolConfig(by=ways, include_prompt=self.include_prompt))


class _Dense(JsonObject):
    activation_function: Function = "tanh"
    module_input_name: Literal["sentence_embedding"] = "sentence_embedding"
    module_output_name: Literal["sentence_embedding"] = "sentence_embedding"
    use_residual: Literal[False] = False


def model_file(folder: pathlib.Path, chosen: str | None) -> str | None:
    """Return the ONNX file of a folder, relative to it; None if it isn't that of a model of text.

    Raises:
        TextModelError: There is none, or it lies outside the folder.
    """
    files, names = FolderFiles(folder), (chosen,) if chosen else MODEL_FILES
    if files.path(CONFIG) is None:
        return None
    for name in filter(files.path, names):
        return name
    there = ", ".join(sorted(str(path.relative_to(folder)) for path in folder.rglob("*.onnx"))) or "none"
    advice = f"export one, or choose one with the key file; its ONNX files are {there}"
    raise TextModelError(folder, f"it has {CONFIG}, but no {' or '.join(names)}; {advice}")


def as_folder_says(config: ModelConfig) -> tuple[ModelConfig, list[str]]:
    """Return the configuration of a version with what its folder says, and five lines about what was read and assumed.

    Without a file in a folder, it is returned as it is, and no lines. The ONNX file itself isn't read.

    Raises:
        TextModelError: The folder says what can't be followed.
    """
    if config.file is None:
        return config, []
    folder = config.path.parents[len(pathlib.PurePath(config.file).parts) - 1]
    if config.preprocess or config.postprocess:
        problem = "the folder says which stages there are; leave preprocess and postprocess out, or name its ONNX file"
        raise TextModelError(folder, problem)
    reader = _Reader(FolderFiles(folder))
    text, before, after = reader.text(), reader.tokenize(), tuple(reader.stages())
    given = {} if config.text is None else {name: getattr(config.text, name) for name in config.text.model_fields_set}
    usual = {"batching": BatchingConfig(max_batch_size=32, max_batch_tokens=2048), "lengths": "auto"}
    update: dict[str, Any] = {name: usual[name] for name in usual.keys() - config.model_fields_set}
    update |= {"file": None, "text": text.model_copy(update=given), "postprocess": after}
    whole = config.model_copy(update={**update, "preprocess": (PreprocessConfig(tokenize=before),)})
    shown = whole.model_dump(mode="json", include=set(SHOWN), exclude_defaults=True)
    read = [f"{name}: {json.dumps(shown.get(name), ensure_ascii=False):.500}" for name in SHOWN]
    assumed = "; ".join(reader.assumed) or "nothing"
    return whole, [f"read from the folder {folder}; file {config.file}", *read, f"assumed: {assumed}"]


class _Reader:
    """Reads a folder, and notes what it has to assume."""

    def __init__(self, files: FolderFiles) -> None:
        self.assumed: list[str] = []
        self._files = files
        self._config = config = files.read(CONFIG, _Config) or _Config()
        self._sentence = sentence = files.read(SENTENCE, _Sentence) or _Sentence()
        self._modules = files.read(MODULES, list[_Module])
        places = (sentence, ACTIVATION), (config.sentence_transformers, ACTIVATION), (config, OLD_ACTIVATION)
        self._activations = [getattr(one, name) for one, name in places if name in one.model_fields_set]
        self._architecture = next(iter(config.architectures), "")
        self._is_cross = sentence.model_type == "CrossEncoder" or bool(self._activations)
        classifies = self._architecture.endswith("ForSequenceClassification") and self._modules is None
        self._labels = self._names() if self._is_cross or classifies else ()

    def tokenize(self) -> TokenizeConfig:
        """Return the stage that tokenizes."""
        config = self._files.read("tokenizer_config.json", _TokenizerConfig) or _TokenizerConfig()
        name = next(filter(self._files.path, LENGTH_FILES), LENGTH_FILES[0])
        lengths = self._files.read(name, _Lengths) or _Lengths()
        return TokenizeConfig(
            file=self._files.needed("tokenizer.json"),
            max_length=self._longest(lengths.max_seq_length or config.model_max_length),
            pair=len(self._labels) == 1 or self._is_cross,
            lower=lengths.do_lower_case,
            padding_side=config.padding_side,
            truncation_side=config.truncation_side,
            pad_token=config.pad_token,
        )

    def text(self) -> TextConfig:
        """Return what requests may ask for."""
        one, labels = self._sentence, self._labels
        if one.default_prompt_name is not None and one.default_prompt_name not in one.prompts:
            self._refuse(SENTENCE, f"default_prompt_name: {one.default_prompt_name!r} is none of prompts")
        task: Any = "embed" if not labels else "rerank" if len(labels) == 1 else "classify"
        return TextConfig(task=task, prompts=one.prompts, default_prompt=one.default_prompt_name, labels=labels)

    def stages(self) -> Iterator[PostprocessConfig]:
        """Yield the stages behind the model."""
        modules = list(self._later_modules())
        if self._labels:
            yield from self._scores()
            return
        may_be_pooled = all(kind != "Dense" for kind, _ in modules)  # nothing tells whether Dense is in an export
        yield PostprocessConfig(keep=POOLED_OUTPUTS if may_be_pooled else TOKEN_OUTPUTS)
        if self._modules is None:
            yield PostprocessConfig(pool=PoolConfig(by=self._usual_pooling()))
        for kind, folder in modules:
            yield self._stage(kind, folder)

    def _longest(self, said: float | None) -> int:
        """Return the most tokens of a text: as the folder says, and no more than the model has positions."""
        positions = self._config.max_position_embeddings
        if positions is not None and self._config.model_type in OFFSET_FAMILY:
            positions -= self._config.pad_token_id + 1
        found = [int(size) for size in (said, positions) if size is not None and 0 < size < 1e6]
        if not found:
            self.assumed.append(f"{USUAL_LENGTH} tokens at most, since no file says how many")
        return min(found, default=USUAL_LENGTH)

    def _later_modules(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the folder of each module behind the first, which is the model."""
        for index, one in enumerate(self._modules or ()):
            package, _, kind = one.type.rpartition(".")
            if package.partition(".")[0] != "sentence_transformers":
                self._refuse(MODULES, f"[{index}].type: {one.type!r} is Python of the folder, which never runs")
            known = ("Transformer",) if index == 0 else () if self._labels else ("Pooling", "Dense", "Normalize")
            if kind not in known or (index == 0 and one.path):
                what = f"{one.type!r} in the folder {one.path!r}"
                self._refuse(MODULES, f"[{index}]: {what}, which isn't followed; {', '.join(known) or 'nothing'} is")
            if index:
                yield kind, one.path

    def _stage(self, kind: str, folder: str) -> PostprocessConfig:
        if kind == "Normalize":
            return PostprocessConfig(l2_normalize=NoSettings())
        if kind == "Pooling":
            return (self._files.read(f"{folder}/{CONFIG}", _Pooling) or _Pooling()).stage()
        dense = self._files.read(f"{folder}/{CONFIG}", _Dense) or _Dense()
        weights = self._files.needed(f"{folder}/model.safetensors")
        return PostprocessConfig(dense=DenseConfig(file=weights, activation=dense.activation_function))

    def _usual_pooling(self) -> Any:
        """Return how sentence-transformers pools where nothing says how."""
        by = "lasttoken" if self._architecture.endswith("ForCausalLM") and self._config.is_causal else "mean"
        self.assumed.append(f"pooling by {by}, and vectors of any length, since there is no {MODULES}")
        return by

    def _scores(self) -> Iterator[PostprocessConfig]:
        """Yield what follows the logits of a cross-encoder or classifier."""
        yield PostprocessConfig(keep=("logits",))
        if not self._activations and len(self._labels) == 1:
            self.assumed.append("sigmoid of the logit, since no activation is named")
        function: Any = next(iter(self._activations), "sigmoid" if len(self._labels) == 1 else None)
        if function is not None:
            yield PostprocessConfig(activation=function)

    def _names(self) -> tuple[str, ...]:
        """Return the names of classes, in the order of their numbers."""
        names = self._config.id2label or {str(number): str(number) for number in range(self._config.num_labels)}
        if names.keys() != {str(number) for number in range(len(names))}:
            self._refuse(CONFIG, f"id2label: should have a name for each number from 0 to {len(names) - 1}")
        return tuple(names[str(number)] for number in range(len(names)))

    def _refuse(self, file: str, problem: str) -> NoReturn:
        raise TextModelError(self._files.folder / file, problem)
