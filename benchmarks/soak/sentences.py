"""A model of texts: its tokenizer, its graph, and sentences of unlike lengths."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

WORDS = ("[PAD]", "[UNK]", "red", "green", "blue", "fox", "dog", "runs", "sleeps", "café")
LONGEST, SIZE = 40, 8

GRAPH = f"""<ir_version: 10, opset_import: ["": 17]>
sentences (int64[N, T] input_ids, int64[N, T] attention_mask) => (float[N, {SIZE}] vectors)
<int64[1] tokens = {{1}}, int64[1] last = {{2}}> {{
    own = Gather(table, input_ids)
    ones = Cast<to = 1>(attention_mask)
    column = Unsqueeze(ones, last)
    seen = Mul(own, column)
    sums = ReduceSum<keepdims = 0>(seen, tokens)
    counts = ReduceSum<keepdims = 0>(column, tokens)
    means = Div(sums, counts)
    vectors = MatMul(means, w)
}}"""


def sentences_of(rng: np.random.Generator, count: int) -> list[list[str]]:
    """Return the words of some sentences."""
    return [list(rng.choice(WORDS[1:], rng.integers(1, LONGEST))) for _ in range(count)]


def tokenized(sentences: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Return the inputs of the graph."""
    ids = np.zeros((len(sentences), max(map(len, sentences))), np.int64)
    for row, words in zip(ids, sentences, strict=True):
        row[: len(words)] = [WORDS.index(word) for word in words]
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}


def graph(rng: np.random.Generator) -> onnx.ModelProto:
    """Return a model that gives the mean of its words' vectors, times weights."""
    model = onnx.parser.parse_model(GRAPH)
    for name, shape in (("table", (len(WORDS), SIZE)), ("w", (SIZE, SIZE))):
        model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape, np.float32), name))
    return model


def tokenizer() -> str:
    """Return a tokenizer.json that splits at spaces."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    content: Mapping[str, Any] = {
        "version": "1.0",
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
        "added_tokens": [],
    }
    return json.dumps(content)
