"""A model of text as requests see it: what its answers are, and what they may ask for."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.serving.errors import InvalidRequestError, TextModelError
from trtnode.serving.schema.model import ModelConfig
from trtnode.serving.schema.pipeline import PreprocessConfig
from trtnode.serving.schema.text import Task, TextConfig, TokenizeConfig
from trtnode.serving.text.tokenizer import TOKEN_INPUTS, Tokenizer

TEXT = "text"
"""The input that requests bring instead of token ids."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """A model that takes texts. Thread-safe.

    Attributes:
        task: What its answers are: vectors of texts, scores of pairs, or logits of classes.
        tokenizer: Makes its inputs.
        text_input: Name of the input of texts.
        output: Name of the output that has its answers.
        prompts: Texts that requests may have put before theirs, by name.
        default_prompt: The name of that for requests that name none; None for no prompt.
        dimensions: The most dimensions that a request may ask for; None where it may ask for none.
        labels: The name of each class.
    """

    task: Task
    tokenizer: Tokenizer
    text_input: str
    output: str
    prompts: Mapping[str, str]
    default_prompt: str | None
    dimensions: int | None
    labels: Sequence[str]

    def prompt(self, name: str | None = None) -> str:
        """Return the prompt of a name, or the default one.

        Raises:
            InvalidRequestError: There is none of this name.
        """
        chosen = self.default_prompt if name is None else name
        if chosen is None:
            return ""
        if chosen not in self.prompts:
            known = ", ".join(map(repr, self.prompts)) or "none"
            raise InvalidRequestError(f"there is no prompt {chosen[:255]!r}; there are {known}")
        return self.prompts[chosen]

    def tokenized(self, label: str, feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the arrays of a request with its texts tokenized, behind the default prompt.

        Raises:
            InvalidRequestError: A text is at fault.
        """
        if self.text_input not in feeds:
            return feeds
        others = {name: array for name, array in feeds.items() if name != self.text_input}
        return {**others, **self.tokenizer.encode(label, feeds[self.text_input].tolist(), prompt=self.prompt())}


def count_tokens(feeds: Mapping[str, np.ndarray]) -> int:
    """Return how many tokens a request has, padding aside."""
    mask = feeds.get("attention_mask")
    return int(mask.sum()) if mask is not None else feeds["input_ids"].size


def tokenizing(config: ModelConfig) -> TokenizeConfig | None:
    """Return the stage of a model that tokenizes; None if it takes no texts."""
    first = config.preprocess[0] if config.preprocess else None
    return first.tokenize if isinstance(first, PreprocessConfig) else None


def load_tokenizer(model: pathlib.Path, stage: TokenizeConfig, inputs: Sequence[TensorSpec]) -> Tokenizer:
    """Return the tokenizer that makes the inputs of a model.

    Raises:
        TextModelError: It can't be read, or the model has no input of token ids.
    """
    made = {spec.name: spec for spec in inputs if spec.name in TOKEN_INPUTS}
    if "input_ids" not in made:
        there = ", ".join(repr(spec.name) for spec in inputs) or "none"
        raise TextModelError(model, f"tokenizing needs an input 'input_ids', and its inputs are {there}")
    types = {name: spec.dtype.numpy() for name, spec in made.items() if spec.dtype is not None}
    shape = made["input_ids"].shape or ()
    return Tokenizer.load(stage, types, shape[1] if len(shape) == 2 and isinstance(shape[1], int) else None)


def text_model(config: ModelConfig, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> TextModel | None:
    """Return a model of text; None if it takes no texts.

    Args:
        config: How it is served.
        inputs: Those of the model, with all of its other stages.
        outputs: Likewise.

    Raises:
        TextModelError: The tokenizer can't be read, or doesn't fit the model.
    """
    stage = tokenizing(config)
    if stage is None:
        return None
    text = config.text or TextConfig()
    output = next((spec for spec in outputs if len(spec.shape or ()) == 2), outputs[0])
    size = output.shape[-1] if output.shape else None
    return TextModel(
        task=text.task or ("rerank" if stage.pair else "embed"),
        tokenizer=load_tokenizer(config.path, stage, inputs),
        text_input=TEXT,
        output=output.name,
        prompts=text.prompts,
        default_prompt=text.default_prompt,
        dimensions=size if text.dimensions and isinstance(size, int) else None,
        labels=text.labels,
    )
