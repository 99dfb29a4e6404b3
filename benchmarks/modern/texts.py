"""An encoder of texts served with ``lengths``, beside sentence-transformers in the process of its callers."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import statistics
import tempfile
import threading
import time

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertModel, BertTokenizerFast

from benchmarks.lengths import WORDS, Server, closed_loop, serve_texts, text_lengths
from benchmarks.modern.networks import MINILM, write_network

CALLERS = (1, 16)
BULK = 512
"""Texts of one call of ``SentenceTransformer.encode``, which sorts them by length and takes 32 at a time."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextsRow:
    """Answers of a MiniLM a second, as medians of turns.

    Attributes:
        callers: How many wait for an answer each.
        served: By a server of this project over gRPC, which gets tokens and sends the states of all of them.
        encoded: By ``SentenceTransformer.encode`` of a text, which takes words and returns their mean.
        bulk: By ``encode`` of `BULK` texts at once, whatever the callers.
    """

    callers: int
    served: float
    encoded: float
    bulk: float


def measure_texts(folder: pathlib.Path, seconds: float, rounds: int) -> list[TextsRow]:
    """Measure both in turns, on texts as ``benchmarks.lengths`` has them."""
    path, _ = write_network("minilm", folder)
    with tempfile.TemporaryDirectory(prefix="trtnode-bench-") as scratch:
        encoder = _encoder(pathlib.Path(scratch))
        with serve_texts(path, pathlib.Path(scratch), {"lengths": "auto"}) as ours:
            theirs = Server(lambda length: _seconds(encoder, [_text(length)]), lambda: 0.0)
            return [_row(callers, ours, theirs, encoder, seconds, rounds) for callers in CALLERS]


def _row(
    callers: int, ours: Server, theirs: Server, encoder: SentenceTransformer, seconds: float, rounds: int
) -> TextsRow:
    served, encoded, bulk = [], [], []
    for turn in range(rounds):
        served.append(len(closed_loop(ours, callers, seconds, turn)) / seconds)
        encoded.append(len(closed_loop(theirs, callers, seconds, turn)) / seconds)
        texts = [_text(length) for length in itertools.islice(text_lengths(turn), BULK)]
        bulk.append(BULK / _seconds(encoder, texts))
    median = statistics.median
    return TextsRow(callers=callers, served=median(served), encoded=median(encoded), bulk=median(bulk))


def _encoder(folder: pathlib.Path) -> SentenceTransformer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = folder / "vocab.txt"
    words.write_text("\n".join([*special, *(f"w{number}" for number in range(WORDS))]), encoding="utf-8")
    BertTokenizerFast(str(words), model_max_length=MINILM.max_position_embeddings).save_pretrained(folder)
    BertModel(MINILM, add_pooling_layer=False).save_pretrained(folder)
    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(MINILM.hidden_size)], device="cpu")


def _text(length: int) -> str:
    start = threading.get_ident() + time.monotonic_ns()
    return " ".join(f"w{(start + word) % WORDS}" for word in range(max(1, length - 2)))  # two tokens stand around them


def _seconds(encoder: SentenceTransformer, texts: list[str]) -> float:
    began = time.monotonic()
    encoder.encode(texts, show_progress_bar=False)
    return time.monotonic() - began
