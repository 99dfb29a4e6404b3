"""Sections of servable.yaml about models of text: how texts become tokens, and what requests may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from trtnode.serving.schema.fields import ConfigPath, Count, ListOf, Section

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"]
Activation = Literal["sigmoid", "tanh", "relu", "gelu"]
Task = Literal["embed", "rerank", "classify"]
Characters = Annotated[int, Field(ge=1, le=1 << 30)]


class TokenizeConfig(Section):
    """Requests bring texts (BYTES); the model gets their token ids, which are made before requests are batched."""

    file: ConfigPath
    """A tokenizer.json, as the library `tokenizers` writes it. Its own truncation and padding have no effect."""
    max_length: Count = 512
    """Most tokens of a text or pair, special ones included; what is longer is cut."""
    pair: bool = False
    """Each element of a request is two texts, [batch, 2]; the longer one is cut first."""
    lower: bool = False
    """Put texts into lower case first."""
    padding_side: Literal["right", "left"] = "right"
    """The side at which shorter texts are filled up."""
    truncation_side: Literal["right", "left"] = "right"
    """The side at which longer texts are cut."""
    pad_token: str | None = None
    """The token that fills up shorter texts; null for that of the file, else [PAD] or <pad>."""
    max_characters: Characters = 4_000_000
    """Most characters of all texts of a request together; more are refused, not tokenized."""
    max_texts: Count = 2048
    """Most texts, or pairs, of a request."""


class PoolConfig(Section):
    """One vector of a text, `sentence_embedding`, from those of its tokens."""

    by: Annotated[ListOf[Pooling], Field(min_length=1)] | Pooling = "mean"
    """Its first or last token, or the mean, the largest, the sum divided by the root of the length, or the mean with
    later tokens counting more; a list puts several one behind the other."""
    include_prompt: bool = True
    """False leaves the tokens of a prompt out."""

    @property
    def ways(self) -> tuple[Pooling, ...]:
        """The ways of pooling, always several."""
        return (self.by,) if isinstance(self.by, str) else self.by


class DenseConfig(Section):
    """A linear layer."""

    file: ConfigPath
    """Its weights, a file of safetensors with linear.weight and maybe linear.bias."""
    activation: Activation | None = "tanh"
    """The function that follows; null for none."""


class NoSettings(Section):
    """A stage without settings."""


class TextConfig(Section):
    """Requests of a model that tokenizes: what its answers are, and what they may ask for."""

    task: Task | None = None
    """The kind of its answers: vectors, scores of pairs, or logits of classes; null for rerank of pairs, else embed."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Texts that requests may have put before theirs, by name."""
    default_prompt: str | None = None
    """The name of the one for requests that name none."""
    dimensions: bool = False
    """True lets requests ask for shorter vectors; for models that were trained for that (Matryoshka)."""
    labels: ListOf[str] = ()
    """The name of each class."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the fault of each setting that contradicts another one."""
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            known = ", ".join(map(repr, self.prompts)) or "none"
            yield "default_prompt", f"{self.default_prompt!r} is none of prompts, which are {known}; add it there"
