"""Sizes of dimensions by their names: equal names have equal sizes, and expressions have those of their symbols."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir

from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model.values import Dimension

SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

SUM = re.compile(r"(?!.{121})[\w.]+( ?[+-] ?[\w.]+)*", re.ASCII)
"""Most expressions. Their sizes are added up here: to import sympy, which knows the others, takes half a second."""

TERM = re.compile(r"([+-]?) ?([\w.]+)", re.ASCII)

EXPRESSION = re.compile(r"(?!.*(\*\*|\d{7}))[\w .,+*/%()-]{1,120}", re.ASCII)
"""Names that may be evaluated. Powers and long numbers could take for ever."""


def named(inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Give a symbol to each dimension without a size that has none.

    A name is an expression if one of its symbols is the name of another dimension. Any other name is a symbol, even if
    it looks like an expression (``batch-size``).
    """
    given = dict.fromkeys(d for spec in inputs for d in spec.shape or () if isinstance(d, str))
    plain = {name for name in given if SYMBOL.fullmatch(name)}
    fresh = (name for name in map("size_{}".format, itertools.count()) if name not in given)
    names = {name: name if name in plain or not plain.isdisjoint(_symbols(name)) else next(fresh) for name in given}

    def symbol(dimension: Dimension) -> Dimension:
        if isinstance(dimension, int):
            return dimension
        return next(fresh) if dimension is None else names[dimension]

    return tuple(_reshaped(spec, symbol) for spec in inputs)


def with_names(inputs: Sequence[TensorSpec], expressions: Mapping[str, str]) -> tuple[TensorSpec, ...]:
    """Return named inputs, with an expression for each symbol that follows from others."""
    return tuple(_reshaped(s, lambda d: expressions.get(d, d) if isinstance(d, str) else d) for s in inputs)


def symbols_of(inputs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the symbols that the sizes of named inputs follow from, in order."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(map(_symbols, _names(inputs)))))


def has_expressions(inputs: Sequence[TensorSpec]) -> bool:
    """Return whether a size of named inputs follows from others."""
    return not all(map(SYMBOL.fullmatch, _names(inputs)))


def free_sizes(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes of symbols in some shapes of named inputs."""
    return {
        name: size
        for spec in inputs
        for name, size in zip(spec.shape or (), shapes.get(spec.name, ()), strict=False)
        if isinstance(name, str) and SYMBOL.fullmatch(name)
    }


def with_sizes(inputs: Sequence[TensorSpec], sizes: Mapping[str, int]) -> tuple[TensorSpec, ...] | None:
    """Return named inputs in fixed shapes; None where an expression gives no size."""
    found: dict[str, int] = {}
    for name in _names(inputs):
        size = sizes.get(name)
        size = _evaluated(name, sizes) if size is None else size
        if size is None:
            return None
        found[name] = size
    return tuple(_reshaped(spec, lambda d: found[d] if isinstance(d, str) else d) for spec in inputs)


def _reshaped(spec: TensorSpec, change: Callable[[Dimension], Dimension]) -> TensorSpec:
    return spec if spec.shape is None else dataclasses.replace(spec, shape=tuple(map(change, spec.shape)))


def _names(inputs: Sequence[TensorSpec]) -> Iterator[str]:
    return (d for spec in inputs for d in spec.shape or () if isinstance(d, str))


@functools.lru_cache(maxsize=1024)
def _symbols(name: str) -> frozenset[str]:
    """Return the symbols of a name; none where it can't be evaluated."""
    if SYMBOL.fullmatch(name):
        return frozenset((name,))
    if SUM.fullmatch(name):
        terms = [term for _, term in TERM.findall(name)]
        symbols = frozenset(filter(SYMBOL.fullmatch, terms))
        return symbols if all(term in symbols or term.isdigit() for term in terms) else frozenset()
    try:
        return ir.SymbolicDim(name).free_symbols() if EXPRESSION.fullmatch(name) else frozenset()
    except (ArithmeticError, RecursionError, ValueError):
        return frozenset()


def _evaluated(name: str, sizes: Mapping[str, int]) -> int | None:
    try:
        size = _sum(name, sizes) if SUM.fullmatch(name) else ir.SymbolicDim(name).evaluate(sizes)
    except (ArithmeticError, KeyError, RecursionError, ValueError):
        return None
    return size if isinstance(size, int) and size >= 0 else None


def _sum(name: str, sizes: Mapping[str, int]) -> int:
    terms = ((sign, int(term) if term.isdigit() else sizes[term]) for sign, term in TERM.findall(name))
    return sum(-size if sign == "-" else size for sign, size in terms)
