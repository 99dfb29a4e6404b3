"""Texts to token ids, and what is refused before any is made."""

from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any

import numpy as np
import pytest

from tests.workshop.text_models import WORDS, save_tokenizer
from trtnode.serving.errors import InvalidRequestError, TextModelError
from trtnode.serving.schema.text import TokenizeConfig
from trtnode.serving.text.tokenizer import TOKEN_INPUTS, Tokenizer

INT64 = np.dtype(np.int64)
LABEL = "input 'text' of model 'm'"


def load(folder: pathlib.Path, *, length: int | None = None, fixed: int = 0, **settings: Any) -> Tokenizer:
    save_tokenizer(folder / "tokenizer.json", fixed=fixed)
    config = TokenizeConfig(file=folder / "tokenizer.json", **settings)
    return Tokenizer.load(config, dict.fromkeys(TOKEN_INPUTS, INT64), length)


def words(ids: np.ndarray) -> list[str]:
    return [" ".join(WORDS[token] for token in row) for row in ids]


def refused(call: Any) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        call()
    return str(caught.value)


def test_texts_become_ids_of_one_length(tmp_path: pathlib.Path) -> None:
    made = load(tmp_path).encode(LABEL, ["the red fox", "café".encode()])

    assert words(made["input_ids"]) == ["[CLS] the red fox [SEP]", "[CLS] café [SEP] [PAD] [PAD]"]
    assert made["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 2, 2]]
    assert not made["token_type_ids"].any()
    assert {array.dtype for array in made.values()} == {INT64}


def test_padding_at_the_left_counts_places_from_the_first_token(tmp_path: pathlib.Path) -> None:
    made = load(tmp_path, padding_side="left").encode(LABEL, ["the red fox", "dog"])

    assert words(made["input_ids"])[1] == "[PAD] [PAD] [CLS] dog [SEP]"
    assert made["attention_mask"][1].tolist() == [0, 0, 1, 1, 1]
    assert made["position_ids"][1].tolist() == [0, 0, 0, 1, 2]


def test_the_files_own_truncation_and_padding_have_no_effect(tmp_path: pathlib.Path) -> None:
    made = load(tmp_path, fixed=4).encode(LABEL, ["the red fox sleeps"])

    assert words(made["input_ids"]) == ["[CLS] the red fox sleeps [SEP]"]


@pytest.mark.parametrize(("side", "kept"), [("right", "the red"), ("left", "fox sleeps")])
def test_long_texts_are_cut_at_the_configured_side(tmp_path: pathlib.Path, side: str, kept: str) -> None:
    made = load(tmp_path, max_length=4, truncation_side=side).encode(LABEL, ["the red fox sleeps"])

    assert words(made["input_ids"]) == [f"[CLS] {kept} [SEP]"]


def test_of_pairs_the_longer_text_is_cut(tmp_path: pathlib.Path) -> None:
    made = load(tmp_path, max_length=6, pair=True).encode(LABEL, [["a", "the red fox sleeps"], ["the red fox", "dog"]])

    assert words(made["input_ids"]) == ["[CLS] a [SEP] the red [SEP]", "[CLS] the red [SEP] dog [SEP]"]
    assert made["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]]


def test_a_model_of_one_length_gets_that(tmp_path: pathlib.Path) -> None:
    tokenizer = load(tmp_path, length=5)

    assert words(tokenizer.encode(LABEL, ["dog"])["input_ids"]) == ["[CLS] dog [SEP] [PAD] [PAD]"]
    assert words(tokenizer.encode(LABEL, ["the red green fox"])["input_ids"]) == ["[CLS] the red green [SEP]"]


def test_prompts_and_lower_case(tmp_path: pathlib.Path) -> None:
    made = load(tmp_path, lower=True).encode(LABEL, ["The RED fox"], prompt="query: ")

    assert words(made["input_ids"]) == ["[CLS] query : the red fox [SEP]"]


def test_a_request_may_bring_token_ids(tmp_path: pathlib.Path) -> None:
    tokenizer = load(tmp_path, max_length=4)

    made = tokenizer.encode_ids(LABEL, [[1, 9, 2], [1, 7, 8, 9, 2]])

    assert made["input_ids"].tolist() == [[1, 9, 2, 0], [1, 7, 8, 9]]
    assert made["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    for ids, problem in (([[1, 99]], "list 0 has a token that is not from 0 to 16"), ([[1], []], "list 1 is empty")):
        assert problem in refused(lambda ids=ids: tokenizer.encode_ids(LABEL, ids))


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        pytest.param([], "has no text; send at least one", id="none"),
        pytest.param(["fox", ""], "text 1 is empty; send at least one character", id="empty"),
        pytest.param([b"\xff\xfe"], "text 0 is not UTF-8 text", id="bytes"),
        pytest.param(["\ud800"], "text 0 is not UTF-8 text", id="half-of-a-pair"),
        pytest.param(["fox " * 6], "have 24 characters; together they may have 20 (max_characters)", id="long"),
        pytest.param(["a"] * 4, "has 4 texts; a request may have 3 (max_texts)", id="many"),
    ],
)
def test_texts_at_fault_are_refused(tmp_path: pathlib.Path, texts: list[Any], problem: str) -> None:
    tokenizer = load(tmp_path, max_characters=20, max_texts=3)

    message = refused(lambda: tokenizer.encode(LABEL, texts))

    assert message.startswith(LABEL)
    assert message.endswith(problem)


def test_what_is_no_pair_is_refused(tmp_path: pathlib.Path) -> None:
    tokenizer = load(tmp_path, pair=True)

    assert "element 0 is no pair" in refused(lambda: tokenizer.encode(LABEL, ["fox"]))
    assert "element 1 is no pair" in refused(lambda: tokenizer.encode(LABEL, [["a", "b"], ["a"]]))
    assert "pair 0: text 1 is empty" in refused(lambda: tokenizer.encode(LABEL, [["a", ""]]))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"{}", "it is no tokenizer that can be used here", id="no-tokenizer"),
        pytest.param(b"[" * 100_000, "it is no tokenizer that can be used here", id="nested"),
        pytest.param(None, "it has more than 64 MiB", id="huge"),
    ],
)
def test_files_that_are_no_tokenizers_are_refused(tmp_path: pathlib.Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content or b"")
    if content is None:
        os.truncate(path, 1 << 30)

    with pytest.raises(TextModelError, match=re.escape(problem)):
        Tokenizer.load(TokenizeConfig(file=path), {"input_ids": INT64})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ("post_processor", {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}],
                            "pair": [], "special_tokens": {}}),
    ],
)  # fmt: skip
def test_files_at_which_the_library_panics_are_refused(tmp_path: pathlib.Path, part: str, value: Any) -> None:
    path = tmp_path / "tokenizer.json"
    save_tokenizer(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), part: value}))

    with pytest.raises((TextModelError, InvalidRequestError)):
        Tokenizer.load(TokenizeConfig(file=path), {"input_ids": INT64}).encode(LABEL, ["fox"])


def test_room_for_special_tokens_alone_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TextModelError, match="its special tokens alone are more than max_length, 3"):
        load(tmp_path, max_length=3, pair=True)


def test_a_pad_token_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(TextModelError, match=re.escape("(it has no token '<none>')")):
        load(tmp_path, pad_token="<none>")
