"""Ranges of shapes that engines are built for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from trtnode.partitioner.options import LARGEST_SIZE, Option

_FORM = re.compile(r"\d+(x\d+)*|")
_VALUES_FORM = re.compile(r"-?\d+(x-?\d+)*")
VALUES = "="
"""Stands before values in place of shapes."""


Sizes = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRange:
    """Shapes of one input that an engine runs on: ``min <= opt <= max`` in each dimension."""

    min: Annotated[Sizes, Option("Smallest.", least=-LARGEST_SIZE, most=LARGEST_SIZE)]
    opt: Annotated[Sizes, Option("Most frequent: kernels are chosen for it.", least=-LARGEST_SIZE, most=LARGEST_SIZE)]
    max: Annotated[Sizes, Option("Largest.", least=-LARGEST_SIZE, most=LARGEST_SIZE)]
    values: Annotated[
        bool, Option("True if these are the values of an input that holds sizes, such as the shape of a Reshape.")
    ] = False

    @classmethod
    def parse(cls, text: str) -> ShapeRange:
        """Read ``1x3x224x224``, or three such shapes with commas between: least, best, most. ``=`` means values.

        Raises:
            ValueError: The text has another form, or the shapes are not in order.
        """
        values, parts = text.startswith(VALUES), text.removeprefix(VALUES).split(",")
        if len(parts) not in (1, 3) or not all(map((_VALUES_FORM if values else _FORM).fullmatch, parts)):
            what = "one list of values, such as =1x3x-1" if values else "one shape, such as 1x3x224x224"
            raise ValueError(f"{text!r} should be {what}, or three of them: MIN,OPT,MAX")
        shapes = [tuple(int(size) for size in part.split("x") if size) for part in parts]
        least, best, most = shapes * (3 // len(shapes))
        shape_range = cls(min=least, opt=best, max=most, values=values)
        for _, problem in shape_range.problems():
            raise ValueError(f"{text!r}: {problem}")
        return shape_range

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield each point at fault with its problem: negative sizes first, then ranks and order."""
        if not self.values and min(self.min, default=0) < 0:
            yield "min", f"{shown(self.min)} has a negative size, which only values of an input may have"
        for name, least, most in (("opt", self.min, self.opt), ("max", self.opt, self.max)):
            if len(least) != len(most):
                yield name, f"{shown(most)} should have {len(least)} dimensions, like {shown(least)}"
            elif any(a > b for a, b in zip(least, most, strict=True)):
                yield name, f"{shown(most)} is less than {shown(least)} somewhere; min <= opt <= max must hold"


Profile = Mapping[str, ShapeRange]
"""The shapes of each input by name, or its elements where it ``holds_sizes``."""


def profiles_of(texts: Sequence[str]) -> tuple[Profile, ...]:
    """Read ``NAME:SHAPES``, as often as users give them: each input's first one is in the first profile, and so on.

    Raises:
        ValueError: One has another form, or its shapes are not in order.
    """
    profiles: list[dict[str, ShapeRange]] = []
    for text in texts:
        name, _, shapes = text.rpartition(":")
        if not name:
            raise ValueError(f"{text!r} should be NAME:SHAPE or NAME:MIN,OPT,MAX")
        shape_range = ShapeRange.parse(shapes)
        if all(name in profile for profile in profiles):
            profiles.append({})
        next(profile for profile in profiles if name not in profile)[name] = shape_range
    return tuple(profiles)


def profile_as_json(profile: Profile) -> dict[str, dict[str, Sizes]]:
    """Return a profile in the words of servable.yaml."""
    return {name: {"min": one.min, "opt": one.opt, "max": one.max} for name, one in profile.items()}


def profile_from_json(fields: Mapping[str, Mapping[str, Sequence[int]]]) -> Profile:
    """Read what ``profile_as_json`` has written.

    Raises:
        AttributeError: It is something else.
        LookupError: It is something else.
        TypeError: It is something else.
    """
    return {
        name: ShapeRange(min=tuple(one["min"]), opt=tuple(one["opt"]), max=tuple(one["max"]))
        for name, one in fields.items()
    }


def shown(sizes: Sizes) -> str:
    """Write sizes as users give them, e.g. ``1x3x224x224``."""
    return "x".join(map(str, sizes)) or "a scalar"
