"""Small models of text: a tokenizer of a few words, and graphs whose vectors depend on each token of the mask."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tokenizers
from onnx import numpy_helper
from tokenizers import models, pre_tokenizers, processors

SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
WORDS = (*SPECIAL, "query", ":", "passage", "the", "a", "red", "green", "blue", "fox", "dog", "sleeps", "runs", "café")
SIZE = 4

TABLE = np.random.default_rng(7).standard_normal((len(WORDS), SIZE)).astype(np.float32)
"""The vector of each token, before its neighbours count."""

ENCODER = """<ir_version: 10, opset_import: ["": 17]>
g ({inputs}) => ({outputs}) <int64[1] tokens = {{1}}, int64[1] last = {{2}}> {{
    own = Gather(table, input_ids)
    ones = Cast<to = 1>(attention_mask)
    column = Unsqueeze(ones, last)
    seen = Mul(own, column)
    sums = ReduceSum<keepdims = 1>(seen, tokens)
    counts = ReduceSum<keepdims = 1>(column, tokens)
    means = Div(sums, counts)
    hidden = Add(own, means)
    mean = Squeeze(means, tokens)
    scores = MatMul(mean, head)
    {given}
}}"""
"""The vector of a token is its own, and the mean of all of its text."""


def save_tokenizer(path: pathlib.Path, *, fixed: int = 0) -> tokenizers.Tokenizer:
    """Write a tokenizer.json; ``fixed`` gives it truncation and padding of its own, as those of old models have."""
    library = tokenizers.Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    library.add_special_tokens(list(SPECIAL))
    if fixed:
        library.enable_truncation(fixed)
        library.enable_padding(length=fixed)
    library.save(str(path))
    return library


def save_encoder(
    path: pathlib.Path,
    outputs: Mapping[str, str],
    *,
    more_inputs: Sequence[str] = (),
    classes: int = 1,
) -> None:
    """Write a model.

    Args:
        path: Its file.
        outputs: The value that each output is, ``hidden``, ``mean`` or ``scores``, by name.
        more_inputs: Names of inputs beside input_ids and attention_mask.
        classes: Number of scores, all of which are the sum of ``mean``.
    """
    shapes = {"hidden": f"float[N, T, {SIZE}]", "mean": f"float[N, {SIZE}]", "scores": f"float[N, {classes}]"}
    names = ("input_ids", "attention_mask", *more_inputs)
    model = onnx.parser.parse_model(
        ENCODER.format(
            inputs=", ".join(f"int64[N, T] {name}" for name in names),
            outputs=", ".join(f"{shapes[value]} {name}" for name, value in outputs.items()),
            given="\n    ".join(f"{name} = Identity({value})" for name, value in outputs.items()),
        )
    )
    for name, array in (("table", TABLE), ("head", np.ones((SIZE, classes), np.float32))):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def token_vectors(ids: Sequence[int]) -> np.ndarray:
    """Return the vectors of a text's tokens, float32[tokens, SIZE]."""
    own = TABLE[list(ids)]
    return own + own.mean(0)


def save_folder(folder: pathlib.Path, files: Mapping[str, Any], outputs: Mapping[str, str] | None = None) -> None:
    """Write a folder as sentence-transformers saves it: model, tokenizer, and files of JSON; None leaves one out."""
    usual = {
        "config.json": {"architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 32},
        "tokenizer_config.json": {"model_max_length": 32, "pad_token": "[PAD]"},
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(folder / "tokenizer.json", fixed=4)
    save_encoder(folder / "onnx" / "model.onnx", outputs or {"last_hidden_state": "hidden"})
    write_json(folder, {name: content for name, content in {**usual, **files}.items() if content is not None})


def write_json(folder: pathlib.Path, files: Mapping[str, Any]) -> None:
    """Write files of a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
