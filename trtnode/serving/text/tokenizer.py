"""Texts of requests to token ids. The library ``tokenizers`` splits them; it is an optional part of the installation.

Texts are tokenized in the request's own thread before the queue, as images are decoded. So a text at fault fails its
own request and not a batch, and requests of like lengths share one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.partitioner.pipelines.token_blocks import POOLING_MASK
from trtnode.serving.errors import InvalidRequestError, TextModelError
from trtnode.serving.schema.text import TokenizeConfig
from trtnode.serving.text.folder_files import read_bounded

try:
    import tokenizers

    MISSING = ""
except ImportError:
    MISSING = "tokenizers is not installed here; run: pip install 'trtnode[text]'"
"""The reason for which texts can't be tokenized; empty where they can."""

TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", POOLING_MASK)
"""Inputs of models that are made of texts."""

MOST_FILE_BYTES = 64 << 20
"""The largest files of tokenizers have a vocabulary of 256,000 tokens, and a third of this."""

PAD_TOKENS = ("[PAD]", "<pad>", "<|endoftext|>")
"""Tokens that fill up texts where nothing names one, the first that there is."""

Text = bytes | str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tokenizer:
    """Makes token ids of texts. Thread-safe.

    Attributes:
        config: Its settings.
        inputs: The element type of each input of the model that it makes, by name.
        length: The only length that the model takes; None for any.
    """

    config: TokenizeConfig
    inputs: Mapping[str, np.dtype]
    length: int | None
    _library: Any = dataclasses.field(repr=False)
    _pad: int

    @classmethod
    def load(cls, config: TokenizeConfig, inputs: Mapping[str, np.dtype], length: int | None = None) -> Tokenizer:
        """Read a file.

        Raises:
            TextModelError: The library isn't installed, or the file can't be used.
        """
        if MISSING:
            raise TextModelError(config.file, MISSING)
        content = read_bounded(config.file, MOST_FILE_BYTES)
        try:
            library = tokenizers.Tokenizer.from_buffer(content)
            pad = _pad_id(library, config)
            library.no_padding()
            if config.lower:
                own = [] if library.normalizer is None else [library.normalizer]
                library.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Lowercase(), *own])
            longest = min(config.max_length, length or config.max_length)
            if longest <= library.num_special_tokens_to_add(config.pair):
                raise ValueError(f"its special tokens alone are more than max_length, {longest}")
            library.enable_truncation(longest, strategy="longest_first", direction=config.truncation_side)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises nothing more special, and panics are no Exception
            problem = f"it is no tokenizer that can be used here ({error}); save it anew with the library tokenizers"
            raise TextModelError(config.file, problem) from None
        return cls(config, dict(inputs), length, library, pad)

    def encode(self, label: str, texts: Sequence[Any], *, prompt: str = "") -> dict[str, np.ndarray]:
        """Tokenize the texts of a request.

        Args:
            label: What messages call them.
            texts: Each of type str, or bytes in UTF-8; pairs of them if so configured.
            prompt: Put before each, or before the first of each pair.

        Returns:
            The inputs that the model has: input_ids, attention_mask and so on, [number of texts, longest].

        Raises:
            InvalidRequestError: There is no text, one is empty or not UTF-8, there are more than may be, or a text has
                what the tokenizer has no token for.
        """
        self._check_count(label, texts)
        given = list(self._pairs(label, texts) if self.config.pair else ((text,) for text in _texts(label, texts)))
        count = sum(len(text) for one in given for text in one)
        if count > self.config.max_characters:
            most = f"they may have {self.config.max_characters} (max_characters)"
            raise InvalidRequestError(f"{label}: the texts of the request have {count} characters; together {most}")
        prompted = [(prompt + one[0], *one[1:]) for one in given]
        try:
            encoded = self._library.encode_batch_fast(prompted if self.config.pair else [one for (one,) in prompted])
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # as above
            raise InvalidRequestError(f"{label}: a text can't be tokenized ({error})") from None
        types = [one.type_ids for one in encoded] if "token_type_ids" in self.inputs else ()
        hidden = self._prompt_tokens(prompt) if prompt and POOLING_MASK in self.inputs else 0
        return self._arrays([one.ids for one in encoded], types, hidden)

    def encode_ids(self, label: str, ids: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        """Return the inputs of the model for token ids that a client brings, special ones included.

        Raises:
            InvalidRequestError: There is none, one is no token, or there are more than may be.
        """
        self._check_count(label, ids)
        vocabulary, longest = self._library.get_vocab_size(), self.length or self.config.max_length
        for index, row in enumerate(ids):
            if not row:
                raise InvalidRequestError(f"{label}: list {index} is empty; send at least one token")
            if not 0 <= min(row) <= max(row) < vocabulary:
                raise InvalidRequestError(f"{label}: list {index} has a token that is not from 0 to {vocabulary - 1}")
        return self._arrays([row[:longest] for row in ids], ())

    def _prompt_tokens(self, prompt: str) -> int:
        """Return how many tokens of each text are those of its prompt, with the special ones before them."""
        encoded = self._library.encode(prompt)
        return len(encoded.ids) - (encoded.special_tokens_mask[-1] if encoded.ids else 0)

    def _check_count(self, label: str, rows: Sequence[Any]) -> None:
        if not len(rows):
            raise InvalidRequestError(f"{label} has no text; send at least one")
        if len(rows) > self.config.max_texts:
            most = f"a request may have {self.config.max_texts} (max_texts)"
            raise InvalidRequestError(f"{label} has {len(rows)} texts; {most}")

    def _pairs(self, label: str, pairs: Sequence[Any]) -> Iterator[tuple[str, ...]]:
        for index, pair in enumerate(pairs):
            if isinstance(pair, Text) or len(pair) != 2:
                raise InvalidRequestError(f"{label}: element {index} is no pair; send two texts for each")
            yield tuple(_texts(f"{label}: pair {index}", pair))

    def _arrays(
        self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]], hidden: int = 0
    ) -> dict[str, np.ndarray]:
        """Return rows of token ids, and of their types if there are any, filled up to one length.

        ``hidden`` tokens at the beginning of each don't count for its vector.
        """
        sizes = np.array([len(row) for row in rows])[:, np.newaxis]
        width = self.length or int(sizes.max())
        places = np.arange(width)
        mask = places >= width - sizes if self.config.padding_side == "left" else places < sizes

        def filled(values: Sequence[Sequence[int]], rest: int) -> np.ndarray:
            array = np.full(mask.shape, rest)
            array[mask] = list(itertools.chain.from_iterable(values)) if values else rest
            return array

        made: dict[str, Callable[[], np.ndarray]] = {
            "input_ids": lambda: filled(rows, self._pad),
            "attention_mask": lambda: mask,
            "token_type_ids": lambda: filled(types, 0),
            "position_ids": lambda: np.maximum(mask.cumsum(1) - 1, 0),
            POOLING_MASK: lambda: mask & (mask.cumsum(1) > hidden),
        }
        return {name: np.asarray(made[name](), dtype) for name, dtype in self.inputs.items()}


def _texts(label: str, texts: Sequence[Text]) -> Iterator[str]:
    for index, text in enumerate(texts):
        try:
            decoded = text.decode() if isinstance(text, bytes) else text
            if not decoded.isascii():
                decoded.encode()  # half of a surrogate pair is no text
        except UnicodeError:
            raise InvalidRequestError(f"{label}: text {index} is not UTF-8 text") from None
        if not decoded:
            raise InvalidRequestError(f"{label}: text {index} is empty; send at least one character")
        yield decoded


def _pad_id(library: Any, config: TokenizeConfig) -> int:
    """Return the token that fills up texts; 0 where nothing names one, since masks hide it."""
    own = library.padding
    named = (config.pad_token,) if config.pad_token else ((own["pad_token"],) if own else ()) + PAD_TOKENS
    found = [one for one in map(library.token_to_id, named) if one is not None]
    if config.pad_token and not found:
        raise ValueError(f"it has no token {config.pad_token!r}")
    return int(found[0]) if found else 0
