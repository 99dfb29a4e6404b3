"""Bounds the memory of the text that a model makes of a request. ONNX Runtime counts the places of strings alone."""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from trtnode.engines.errors import MemoryLimitError
from trtnode.engines.inputs.samples import Runner
from trtnode.engines.onnxruntime.memory_limit import limit_bytes
from trtnode.partitioner.model.values import dimensions, tensor_of
from trtnode.partitioner.passes.shape_inference import infer_shapes
from trtnode.partitioner.passes.text_lengths import (
    KEEPING_OPS,
    SPLITTING_OPS,
    is_text,
    longest_result,
    makes_text,
)

SHORT_BYTES = 64
"""Texts up to this size take no more than a few times the places of their strings, which are counted."""
CHARACTER_BYTES = 4
"""The most bytes of a character in UTF-8."""


class TextBound:
    """The nodes of a model that make text, and how much they can make of a request."""

    def __init__(self, inputs: Iterable[ir.Value], nodes: Iterable[ir.Node]) -> None:
        self._inputs = {value.name: value for value in inputs}
        self._nodes = list(nodes)

    @classmethod
    def of(cls, model: ir.Model) -> TextBound | None:
        """Return the bound of a model; None where no request makes it give long text."""
        if not any(map(makes_text, model.graph)):
            return None
        typed = model.clone()
        infer_shapes(typed)
        found = cls(typed.graph.inputs, filter(makes_text, typed.graph))
        return found if found._longest({}) > SHORT_BYTES else None

    def bytes_of(self, feeds: Mapping[str, Any]) -> float:
        """Return a bound of the text that a request makes; infinite where nothing bounds it."""
        return _Request(self._inputs, feeds).bytes_of(self._nodes)

    def _longest(self, known: dict[ir.Value, float]) -> float:
        for op in self._nodes:
            known.update(dict.fromkeys(op.outputs, longest_result(op, known)))
        return max(known.values(), default=0)


class TextGuard:
    """Keeps requests of a model out of this process whose text might take more memory than models may use."""

    def __init__(self, bound: TextBound, most_bytes: int, open_runner: Callable[[], Runner]) -> None:
        self._bound = bound
        self._most_bytes = most_bytes
        self._open_runner = functools.cache(open_runner)

    @classmethod
    def of(
        cls, model: ir.Model, file: pathlib.Path, open_apart: Callable[[pathlib.Path], Runner] | None
    ) -> TextGuard | None:
        """Return the guard of a model; None where it makes no long text, or memory has no limit.

        Args:
            model: The model.
            file: One that gives the same answers natively.
            open_apart: Opens it in another process; None where there is none.
        """
        limit = limit_bytes()
        bound = TextBound.of(model) if limit is not None else None
        if limit is None or bound is None:
            return None
        return cls(bound, limit, functools.partial(open_apart or _refuse, file))

    def covers(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether a request's text surely fits."""
        return self._bound.bytes_of(feeds) <= self._most_bytes

    @property
    def runner(self) -> Runner:
        """The runner of all other requests.

        Raises:
            MemoryLimitError: There is nothing.
        """
        return self._open_runner()


def _refuse(_file: pathlib.Path) -> Runner:
    raise MemoryLimitError("nothing bounds the text that it makes")


class _Request:
    """The sizes of the values that a model computes of a request."""

    def __init__(self, inputs: Mapping[str | None, ir.Value], feeds: Mapping[str, Any]) -> None:
        given = [(inputs[name], array) for name, array in feeds.items() if isinstance(array, np.ndarray)]
        self._longest: dict[ir.Value, float] = {value: _longest_text(array) for value, array in given if is_text(value)}
        self._counts: dict[ir.Value, float] = {value: array.size or 1 for value, array in given}
        self._sizes = {
            name: size or 1
            for value, array in given
            for name, size in zip(dimensions(value) or (), array.shape, strict=False)
            if isinstance(name, str)
        }

    def bytes_of(self, nodes: Iterable[ir.Node]) -> float:
        total = 0.0
        for op in nodes:
            longest = longest_result(op, self._longest)
            for value in op.outputs:
                self._longest[value] = longest
                if longest > SHORT_BYTES:
                    total += self._count_of(value, op) * longest
        return total

    def _count_of(self, value: ir.Value, op: ir.Node) -> float:
        """Return a bound of the texts in a result of a node."""
        count = self._count(value)
        if (op.domain, op.op_type) in SPLITTING_OPS or (count == math.inf and op.op_type in KEEPING_OPS):
            count = sum(self._count(one) for one in op.inputs if one is not None)
        self._counts[value] = count
        return count

    def _count(self, value: ir.Value) -> float:
        if value.const_value is not None:
            return tensor_of(value).size or 1
        known = self._counts.get(value)
        if known is not None:
            return known
        shape = dimensions(value)
        if shape is None:
            return math.inf
        return math.prod(self._sizes.get(size, math.inf) if isinstance(size, str) else _size(size) for size in shape)


def _size(size: int | None) -> float:
    return math.inf if size is None else size or 1


def _longest_text(array: np.ndarray) -> int:
    return CHARACTER_BYTES * max(map(len, array.ravel().tolist()), default=0)
