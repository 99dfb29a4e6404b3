"""State of a model: outputs of one run that are inputs of the next one, such as h0 and hn, or a decoder's cache."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trtnode.partitioner.graph.view import Graph, TensorSpec, describe, specs
from trtnode.partitioner.model.values import Dimension
from trtnode.partitioner.wording import counted

KNOWN_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"past_key_values(.*)", (r"present\1", r"present_key_values\1")),
    (r"past([._].*)", (r"present\1",)),
    (r"(?:in_|input_)(.+)", (r"out_\1", r"output_\1")),
    (r"(.+?)(?:_in|_input|_prev)(\d*)", (r"\1_out\2", r"\1_output\2", r"\1_next\2", r"\1_new\2")),
    (r"(.*[a-z])(_?)0", (r"\1\2n", r"\1\g<2>out", r"\1_out")),
    (r"(.+)", (r"\1_out", r"\1_output", r"\1_next", r"\1_new", r"\1N", r"\1n", r"\1_n")),
    (r"(.+)", (r"new_\1", r"next_\1", r"out_\1", r"r_\1", r"present_\1")),
)
"""Names that exporters give inputs of state, and then the outputs that go with them."""

SMALL_BYTES = 65_536
"""A state of fixed size up to this is copied from run to run faster than it is handed on."""

MOST_NAMED = 4
"""Pairs that a sentence names."""

STATE_WORDS = re.compile(
    r"past|state|cache|hidden|cell|memory|mems?\b|buffer|context|lstm|gru|rnn|(^|_)[hc]x?(_?\d+)?(_|$)"
)
"""Found in names of state; others, such as ``image`` and ``image_out``, only look like a pair."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StateSource:
    """A pair as a user gives it.

    Attributes:
        input: Name of the input.
        output: Name of the output that is its value in the next run.
        initial: Value of the first run; None for zeros.
        shape: That of the first run; None takes it from the model.
    """

    input: str
    output: str
    initial: np.ndarray | None = None
    shape: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StatePair:
    """An input whose value is an output of the run before.

    Attributes:
        input: The input.
        output: Name of the output.
        shape: Sizes of the first run; a symbol is the size that another input of that run has.
        grows: Whether it is a cache: an axis begins at length 0.
        initial: Value of the first run; None for zeros.
    """

    input: TensorSpec
    output: str
    shape: tuple[int | str, ...]
    grows: bool = False
    initial: np.ndarray | None = None

    def __str__(self) -> str:
        first = describe(dataclasses.replace(self.input, shape=self.shape))
        return f"{self.input.name} from {self.output}, at first {first}"

    def first(self, sizes: Mapping[str, int]) -> np.ndarray:
        """Return the value of the first run, of which nobody changes an element."""
        if self.initial is not None:
            return self.initial
        assert self.input.dtype is not None
        return np.zeros([sizes.get(d, 1) if isinstance(d, str) else d for d in self.shape], self.input.dtype.numpy())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The state of a model.

    Attributes:
        pairs: Its tensors.
        inputs: The other inputs, which each run is given.
        outputs: The other outputs.
        left: Other inputs that look like state.
        appended: Those of the other inputs that hold what all runs were given, joined in the last axis.
    """

    pairs: tuple[StatePair, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    left: tuple[str, ...]
    appended: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: Sequence[StatePair], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> States:
        """Return the state of a model of which these are all inputs and outputs."""
        taken, given = {pair.input.name for pair in pairs}, {pair.output for pair in pairs}
        others = tuple(spec for spec in inputs if spec.name not in taken)
        return cls(
            pairs=tuple(pairs),
            inputs=others,
            outputs=tuple(spec for spec in outputs if spec.name not in given),
            left=tuple(spec.name for spec in others if _looks_like_state(spec)),
        )

    @property
    def kept(self) -> Mapping[str, str]:
        """The input of each output that is state, by its name."""
        return {pair.output: pair.input.name for pair in self.pairs}

    @property
    def is_small(self) -> bool:
        """True if the state of one row has a fixed size that is quickly copied."""
        return not any(pair.grows for pair in self.pairs) and sum(map(_row_bytes, self.pairs)) <= SMALL_BYTES

    def sentences(self) -> list[str]:
        """Describe what is kept from run to run, and what looks like state and isn't."""
        shown = "; ".join(map(str, self.pairs[:MOST_NAMED]))
        more = f"; and {len(self.pairs) - MOST_NAMED} more" if len(self.pairs) > MOST_NAMED else ""
        kept = [f"keeps {counted(len(self.pairs), 'tensor')} of state: {shown}{more}"] if self.pairs else []
        left = [f"{name!r} looks like state, and no output fits it by name, type and shape" for name in self.left]
        return kept + [f"appends {name!r} of each run to those before" for name in self.appended] + left

    def as_json(self) -> dict[str, Any]:
        """Return the pairs and what is left as plain JSON values."""
        pairs = [{"input": one.input.name, "output": one.output, "first": list(one.shape)} for one in self.pairs]
        return {"pairs": pairs, "left": list(self.left)}

    def first(self, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the state of a first run on these inputs."""
        sizes = {
            size: feeds[spec.name].shape[axis]
            for spec in self.inputs
            if spec.name in feeds
            for axis, size in enumerate(spec.shape or ())
            if isinstance(size, str)
        }
        empty = {name: feeds[name][..., :0] for name in self.appended}
        return empty | {pair.input.name: pair.first(sizes) for pair in self.pairs}


def find_states(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> States:
    """Find the state of a model by the names that exporters give, equal types, and shapes that fit."""
    by_name = {spec.name: spec for spec in outputs}
    found: dict[str, tuple[TensorSpec, TensorSpec]] = {}
    for spec in filter(_looks_like_state, inputs):
        candidates = (by_name[name] for name in _names_after(spec.name) if name in by_name and name not in found)
        partner = next((one for one in candidates if _misfit(spec, one) is None), None)
        if partner is not None:
            found[partner.name] = spec, partner
    taken = {spec.name for spec, _ in found.values()}
    sizes = _sizes_of(spec for spec in inputs if spec.name not in taken)
    return States.of([_pair_of(*pair, sizes) for pair in found.values()], inputs, outputs)


def states_of(graph: Graph) -> States | None:
    """Return the state of a graph; None where there is none."""
    inputs = (value for value in graph.inputs if not value.is_initializer())
    found = find_states(specs(tuple(inputs)), specs(graph.outputs))
    return found if found.pairs else None


def given_states(sources: Sequence[StateSource], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> States:
    """Return the state of a model as a user gives it.

    Raises:
        ValueError: A pair doesn't fit the model; the text says why.
    """
    takes, gives = ({spec.name: spec for spec in specs} for specs in (inputs, outputs))
    taken = [source.input for source in sources]
    sizes = _sizes_of(spec for spec in inputs if spec.name not in taken)
    pairs = []
    for source in sources:
        for kind, name, known in (("input", source.input, takes), ("output", source.output, gives)):
            if name not in known:
                raise ValueError(f"there is no {kind} {name!r}; the model has {', '.join(known)}")
        if taken.count(source.input) > 1 or sum(one.output == source.output for one in sources) > 1:
            raise ValueError(f"{source.input!r} and {source.output!r} stand in one pair only; leave the other out")
        spec, partner = takes[source.input], gives[source.output]
        if problem := _misfit(spec, partner):
            raise ValueError(f"{problem}; name an output that fits")
        pairs.append(_as_given(_pair_of(spec, partner, sizes), source))
    return States.of(pairs, inputs, outputs)


def _misfit(spec: TensorSpec, output: TensorSpec) -> str | None:
    """Return why an output can't be the next value of an input; None if it can."""
    both = f"input {spec.name!r} is {describe(spec)}, and output {output.name!r} is {describe(output)}"
    if spec.dtype is None or spec.shape is None or spec.dtype != output.dtype:
        return both
    if output.shape is None:
        return None
    pairs = zip(spec.shape, output.shape, strict=False)
    fits = len(spec.shape) == len(output.shape) and all(
        one == other or not (isinstance(one, int) and isinstance(other, int)) for one, other in pairs
    )
    return None if fits else both


def _pair_of(spec: TensorSpec, output: TensorSpec, sizes: frozenset[str]) -> StatePair:
    """Return the pair of an input and an output that fits it; ``sizes`` are symbols that other inputs have."""
    shape = spec.shape or ()
    after = output.shape or (None,) * len(shape)
    first = [_first_size(*sizes_then, sizes) for sizes_then in zip(shape, after, strict=True)]
    if first[:1] == [0] and (0 in first[1:] or None in (shape[0], after[0])):
        first[0] = shape[0] if isinstance(shape[0], str) and shape[0] in sizes else 1  # the batch, named anew
    return StatePair(input=spec, output=output.name, shape=tuple(first), grows=0 in first)


def _row_bytes(pair: StatePair) -> float:
    assert pair.input.dtype is not None
    return math.prod(size for size in pair.shape if isinstance(size, int)) * pair.input.dtype.itemsize


def _first_size(size: Dimension, after: Dimension, sizes: Collection[str]) -> int | str:
    """Return the size of an axis in the first run; 0 where it grows."""
    for known in (size, after):
        if isinstance(known, int):
            return known
    if size is not None and after in (size, None) and size in sizes:
        return size
    return 1 if size is not None and size == after else 0


def _as_given(pair: StatePair, source: StateSource) -> StatePair:
    declared, initial = pair.input, source.initial
    shape: Sequence[int | str] = source.shape if source.shape is not None else pair.shape
    if len(shape) == len(pair.shape):
        shape = [own if size == -1 else size for size, own in zip(shape, pair.shape, strict=True)]
    if initial is not None:
        shape = initial.shape
        assert declared.dtype is not None
        if initial.dtype != declared.dtype.numpy():
            raise ValueError(
                f"the initial value of {source.input!r} is {initial.dtype}, but it is {describe(declared)}"
            )
    fits = len(shape) == len(declared.shape or ()) and all(
        not isinstance(size, int) or size == given for size, given in zip(declared.shape or (), shape, strict=True)
    )
    if not fits:
        text = f"the first value of {source.input!r} has shape {list(shape)}, but it is {describe(declared)}"
        raise ValueError(f"{text}; give a shape that fits")
    return dataclasses.replace(pair, shape=tuple(shape), initial=initial)


def _sizes_of(inputs: Iterable[TensorSpec]) -> frozenset[str]:
    return frozenset(size for spec in inputs for size in spec.shape or () if isinstance(size, str))


def _looks_like_state(spec: TensorSpec) -> bool:
    return STATE_WORDS.search(spec.name.lower()) is not None


def _names_after(name: str) -> Iterator[str]:
    """Yield the names that the output of an input of state may have, the most telling first."""
    for pattern, outputs in KNOWN_NAMES:
        match = re.fullmatch(pattern, name)
        yield from (match.expand(output) for output in outputs) if match else ()
