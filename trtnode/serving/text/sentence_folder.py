"""A folder as sentence-transformers or optimum saves it, read as a section of servable.yaml would describe it.

Answers are to be those of sentence-transformers. What it can't follow is refused with its file and field. Whatever
Python there is beside the files never runs.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.errors import TextModelError
from trtnode.serving.schema.model import BatchingConfig, ModelConfig
from trtnode.serving.schema.pipeline import PostprocessConfig, PreprocessConfig
from trtnode.serving.schema.text import DenseConfig, NormalizeLengthConfig, PoolConfig, Task, TextConfig, TokenizeConfig
from trtnode.serving.text.folder_files import FolderFiles, JsonFile

CONFIG, MODULES = "config.json", "modules.json"

MODEL_FILES = ("model.onnx", "onnx/model.onnx")
"""Places of the ONNX file, the first that there is. Others, such as quantized ones, are never taken by themselves."""

TOKEN_OUTPUTS, SENTENCE_OUTPUT = ("token_embeddings", "last_hidden_state"), "sentence_embedding"

LENGTH_FILES = (
    "sentence_bert_config.json",
    *(f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta")),
    "sentence_xlnet_config.json",
)

OFFSET_FAMILY = ("camembert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl")
"""Model types whose first position is that behind the padding token's number."""

USUAL_LENGTH = 512

OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Fields of older files, in the order in which several are put one behind the other."""

MODES = {**{mode: mode for mode in OLD_MODES.values()}, "mean_sqrt_len_tokens": "mean_sqrt_len"}

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
}


def model_file(folder: pathlib.Path, chosen: str | None) -> str | None:
    """Return the ONNX file of a folder, relative to it; None if it is none of a model of text, or has no such file.

    Raises:
        TextModelError: The file lies outside the folder.
    """
    files = FolderFiles(folder)
    if files.path(CONFIG) is None:
        return None
    return next((name for name in ((chosen,) if chosen else MODEL_FILES) if files.path(name)), None)


def as_folder_says(config: ModelConfig, outputs: Sequence[TensorSpec]) -> tuple[ModelConfig, list[str]]:
    """Return a model's configuration with what its folder says, and a line about each part of it.

    Args:
        config: The model, with its path and its file in the folder.
        outputs: Those of the file.

    Raises:
        TextModelError: The folder says what can't be followed.
    """
    assert config.file is not None
    folder = config.path.parents[len(pathlib.PurePath(config.file).parts) - 1]
    if config.preprocess or config.postprocess:
        problem = "the folder says which stages there are; leave preprocess and postprocess out, or name its ONNX file"
        raise TextModelError(folder, problem)
    reader = _Reader(FolderFiles(folder), outputs)
    text = reader.text()
    given = {} if config.text is None else {name: getattr(config.text, name) for name in config.text.model_fields_set}
    update = {
        "file": None,
        "preprocess": (PreprocessConfig(tokenize=reader.tokenize()),),
        "postprocess": tuple(reader.stages()),
        "text": text.model_copy(update=given),
        **(
            {}
            if "batching" in config.model_fields_set
            else {"batching": BatchingConfig(max_batch_size=32, max_batch_tokens=8192)}
        ),
        **({} if "lengths" in config.model_fields_set else {"lengths": "auto"}),
    }
    return config.model_copy(update=update), reader.lines(folder, config.file)


class _Reader:
    """Reads a folder once, and notes what it had to assume."""

    def __init__(self, files: FolderFiles, outputs: Sequence[TensorSpec]) -> None:
        self._files = files
        self._outputs = outputs
        self._config = files.read(CONFIG)
        self._sentence = files.read("config_sentence_transformers.json")
        self._assumed: list[str] = []
        self._said: dict[str, str] = {}
        modules = files.entries(MODULES)
        self._modules = None if modules is None else list(modules)
        kind = self._sentence.get("model_type", str) or "SentenceTransformer"
        if kind not in ("SentenceTransformer", "CrossEncoder"):
            raise self._sentence.fault("model_type", f"is {kind!r}, and only vectors and scores of pairs are served")
        self._activation = self._activation_of_scores()
        self._is_cross = kind == "CrossEncoder" or self._activation is not None
        names = self._config.get("architectures", list) or [""]
        self._architecture = str(names[0])
        classifies = self._architecture.endswith("ForSequenceClassification") and self._modules is None
        self._has_classes = self._is_cross or classifies

    def tokenize(self) -> TokenizeConfig:
        """Return the stage that tokenizes."""
        path = self._files.path("tokenizer.json")
        if path is None:
            raise TextModelError(self._files.folder / "tokenizer.json", "there is no such file; save a fast tokenizer")
        config, lengths = self._files.read("tokenizer_config.json"), self._files.first(*LENGTH_FILES)
        stage = TokenizeConfig(
            file=path,
            max_length=self._longest(config, lengths),
            pair=self._has_classes and (self._is_cross or self._labels() == 1),
            lower=bool(lengths.get("do_lower_case", bool)),
            padding_side=_side(config, "padding_side"),
            truncation_side=_side(config, "truncation_side"),
            pad_token=_token(config, "pad_token"),
        )
        kinds = "pairs" if stage.pair else "texts"
        self._said["tokenizer"] = (
            f"{kinds} of {stage.max_length} tokens at most, cut {stage.truncation_side}, "
            f"filled up {stage.padding_side} with {stage.pad_token or 'its own token'}{', lower case' * stage.lower}"
        )
        return stage

    def text(self) -> TextConfig:
        """Return what requests may ask for."""
        prompts, default = self._sentence.texts("prompts"), self._sentence.get("default_prompt_name", str)
        if default is not None and default not in prompts:
            raise self._sentence.fault("default_prompt_name", f"is {default!r}, which is none of prompts")
        labels = tuple(self._names()) if self._has_classes else ()
        task: Task = "embed" if not self._has_classes else "rerank" if len(labels) == 1 else "classify"
        said = f"labels {', '.join(labels[:8])}" if task == "classify" else f"prompts {', '.join(prompts) or 'none'}"
        self._said["requests"] = f"{task}; {said}; by default {default or 'none'}"
        return TextConfig(task=task, prompts=prompts, default_prompt=default, labels=labels)

    def stages(self) -> Iterator[PostprocessConfig]:
        """Yield the stages behind the model."""
        stages = list(self._scores() if self._has_classes else self._vectors())
        self._said["stages"] = ", ".join(_described(stage) for stage in stages)
        yield from stages

    def lines(self, folder: pathlib.Path, file: str) -> list[str]:
        """Return what was read and assumed, in five lines."""
        said = self._said
        return [
            f"read from the folder {folder}, as it is; file {file}",
            f"tokenizer: {said['tokenizer']}",
            f"behind the model: {said['stages']}",
            f"requests: {said['requests']}",
            f"assumed: {'; '.join(self._assumed) or 'nothing'}",
        ]

    def _longest(self, config: JsonFile, lengths: JsonFile) -> int:
        """Return the most tokens of a text: as the folder says, and no more than the model has positions."""
        positions = self._config.get("max_position_embeddings", int)
        if positions is not None and self._config.get("model_type", str) in OFFSET_FAMILY:
            positions -= (self._config.get("pad_token_id", int) or 0) + 1
        given = lengths.get("max_seq_length", int)
        own = config.fields.get("model_max_length")
        usual = own if isinstance(own, int | float) and not isinstance(own, bool) else None
        found = [size for size in (given or usual, positions) if size is not None and 0 < size < 1 << 20]
        if not found:
            self._assumed.append(f"{USUAL_LENGTH} tokens at most, since no file says how many")
        return int(min(found, default=USUAL_LENGTH))

    def _vectors(self) -> Iterator[PostprocessConfig]:
        """Yield what follows the vectors of tokens, as modules.json has it."""
        modules = self._later_modules()
        names = {spec.name for spec in self._outputs}
        tokens = [name for name in TOKEN_OUTPUTS if name in names]
        if not tokens and len(self._outputs) == 1 and len(self._outputs[0].shape or ()) == 3:
            tokens = [self._outputs[0].name]
            self._assumed.append(f"{tokens[0]!r} has the vectors of tokens")
        if not tokens:
            if SENTENCE_OUTPUT not in names:
                there = ", ".join(map(repr, sorted(names)))
                raise TextModelError(self._files.folder, f"its ONNX file has {there}, and no {TOKEN_OUTPUTS[1]!r}")
            for one in modules:
                if _kind(one) == "Dense":
                    raise one.fault("type", f"is Dense, which {SENTENCE_OUTPUT!r} may have or not; export the tokens")
            self._assumed.append(f"{SENTENCE_OUTPUT!r} is pooled as {MODULES} says")
            modules = [one for one in modules if _kind(one) != "Pooling"]
        yield PostprocessConfig(keep=tuple(tokens) or (SENTENCE_OUTPUT,))
        if self._modules is None and tokens:
            yield PostprocessConfig(pool=PoolConfig(by=self._usual_pooling()))
        for one in modules:
            yield self._stage(one)

    def _later_modules(self) -> list[JsonFile]:
        """Return the modules behind the first, which is the model."""
        modules = self._modules or []
        for index, one in enumerate(modules):
            place = one.get("type", str) or ""
            if not place.startswith("sentence_transformers."):
                raise one.fault(f"[{index}].type", f"is {place!r}: Python of the folder, which never runs")
            known = ("Transformer",) if index == 0 else ("Pooling", "Dense", "Normalize")
            if _kind(one) not in known:
                raise one.fault(f"[{index}].type", f"is {place!r}, and should be {' or '.join(known)} here")
            if index == 0 and one.get("path", str) not in (None, ""):
                raise one.fault("[0].path", "should be empty: the model lies in the folder itself")
        return modules[1:]

    def _stage(self, module: JsonFile) -> PostprocessConfig:
        kind, folder = _kind(module), module.get("path", str) or ""
        if kind == "Normalize":
            return PostprocessConfig(l2_normalize=NormalizeLengthConfig())
        config = self._files.read(f"{folder}/{CONFIG}")
        if kind == "Pooling":
            include = config.get("include_prompt", bool)
            return PostprocessConfig(pool=PoolConfig(by=_pooling(config), include_prompt=include is not False))
        weights = self._files.path(f"{folder}/model.safetensors")
        if weights is None:
            problem = "there is no such file; save the model anew, since other weights are programs"
            raise TextModelError(self._files.folder / folder / "model.safetensors", problem)
        for name in ("module_input_name", "module_output_name"):
            if config.get(name, str) not in (None, SENTENCE_OUTPUT):
                raise config.fault(name, f"is {config.fields[name]!r}, and should be {SENTENCE_OUTPUT!r}")
        if config.get("use_residual", bool):
            raise config.fault("use_residual", "is true, which isn't followed")
        function = config.get("activation_function", str) or "torch.nn.modules.activation.Tanh"
        return PostprocessConfig(dense=DenseConfig(file=weights, activation=_activation(config, function)))

    def _usual_pooling(self) -> Any:
        """Return how sentence-transformers pools where nothing says how."""
        causal = self._architecture.endswith("ForCausalLM") and self._config.get("is_causal", bool) is not False
        by = "lasttoken" if causal else "mean"
        self._assumed.append(f"pooling by {by}, and vectors of any length, since there is no {MODULES}")
        return by

    def _scores(self) -> Iterator[PostprocessConfig]:
        """Yield what follows the logits of a cross-encoder or classifier."""
        for one in self._later_modules():
            raise one.fault("[1].type", "stands behind the logits, which isn't followed")
        logits = next((spec.name for spec in self._outputs if spec.name == "logits"), self._outputs[0].name)
        yield PostprocessConfig(keep=(logits,))
        function = self._activation
        if function is None and self._labels() == 1:
            self._assumed.append("Sigmoid of the logit, since no activation is named")
            function = "torch.nn.modules.activation.Sigmoid"
        name = _activation(self._config, function) if function is not None else None
        if name is not None:
            yield PostprocessConfig(activation=name)

    def _activation_of_scores(self) -> str | None:
        """Return the function that a cross-encoder names, in the file of one release or another."""
        section = JsonFile(self._config.path, self._config.get("sentence_transformers", dict) or {})
        named = self._sentence.get("activation_fn", str) or section.get("activation_fn", str)
        return named or self._config.get("sbert_ce_default_activation_function", str)

    def _labels(self) -> int:
        return len(list(self._names()))

    def _names(self) -> Iterator[str]:
        """Yield the names of classes, in the order of their numbers."""
        names = self._config.get("id2label", dict) or {}
        count = self._config.get("num_labels", int) or 2
        if names and sorted(names) != sorted(map(str, range(len(names)))):
            raise self._config.fault("id2label", f"should have a name for each number from 0 to {len(names) - 1}")
        yield from (str(names.get(str(n), n)) for n in range(len(names) or count))


def _kind(module: JsonFile) -> str:
    return (module.get("type", str) or "").rpartition(".")[2]


def _pooling(config: JsonFile) -> Any:
    """Return the ways of pooling that a file names, in its old form or in the new one."""
    named = config.fields.get("pooling_mode")
    if named is None:
        return tuple(mode for field, mode in OLD_MODES.items() if config.get(field, bool)) or "mean"
    modes = [named] if isinstance(named, str) else named
    if not isinstance(modes, list) or not modes or not all(isinstance(one, str) and one in MODES for one in modes):
        raise config.fault("pooling_mode", f"is {named!r:.80}, and should be of {', '.join(MODES)}")
    return tuple(MODES[one] for one in modes)


def _activation(config: JsonFile, name: str) -> Any:
    if name not in ACTIVATIONS:
        raise config.fault("activation function", f"is {name!r}, and should be of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _side(config: JsonFile, name: str) -> Any:
    side = config.get(name, str) or "right"
    if side not in ("left", "right"):
        raise config.fault(name, f"is {side!r}, and should be left or right")
    return side


def _token(config: JsonFile, name: str) -> str | None:
    """Return a token that stands there as text, or as an object with its text."""
    found = config.fields.get(name)
    return JsonFile(config.path, found).get("content", str) if isinstance(found, dict) else config.get(name, str)


def _described(stage: PostprocessConfig) -> str:
    setting = getattr(stage, stage.kind)
    match stage.kind:
        case "keep":
            return f"output {setting[0]}"
        case "pool":
            return f"pooling by {' and '.join(setting.ways)}{'' if setting.include_prompt else ' without prompts'}"
        case "dense":
            return f"Dense with {setting.activation or 'no activation'}"
        case "activation":
            return str(setting)
    return "vectors of length 1"
