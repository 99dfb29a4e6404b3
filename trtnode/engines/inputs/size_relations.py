"""Relations between sizes that only runs show: which sizes grow together, and which one is the sum of others.

A refusal names the node at which a run ended. A size that moves this node takes part in the relation behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Sizes = Mapping[str, int]

Refusal = Callable[[Sizes], str | None]
"""Runs a model with sizes of its symbols; returns None, or the place at which the run ended."""

MOST_TRIES = 160
"""Runs in search of relations. Most of them end early."""


class SizeRelations:
    """The sizes that a model runs on, as far as a bounded number of runs shows them."""

    def __init__(self, symbols: Sequence[str], refusal: Refusal) -> None:
        self._symbols = symbols
        self._refusal = refusal
        self._told: dict[tuple[int, ...], str | None] = {}

    def find_start(self, base: int) -> dict[str, int] | None:
        """Return sizes that the model runs on: ``base``, or a little more for some; None where nothing is found."""
        start = dict.fromkeys(self._symbols, base)
        grown = self._grow(start, base, self._place(start))
        if grown is None:
            return None
        for name in [name for name, size in grown.items() if size > base]:
            enough = (size for size in range(base, grown[name]) if self._place({**grown, name: size}) is None)
            grown[name] = next(enough, grown[name])
        return grown

    def expressions(self, start: Sizes) -> dict[str, str]:
        """Return the symbols that follow from others, as sums of these.

        Args:
            start: Sizes that the model runs on.
        """
        step = min(start.values(), default=1)
        alone = {name: self._place({**start, name: start[name] + step}) for name in self._symbols}
        together: dict[str, list[str]] = {}
        for name in self._symbols:
            tied = alone[name] is not None and any(name in moved for moved in together.values())
            together[name] = [name] if tied else self._together(start, step, name, alone)
        leaders = {
            name: [
                other
                for place, other in enumerate(self._symbols)
                if name in together[other][1:] and (other not in together[name] or place < self._symbols.index(name))
            ]
            for name in self._symbols
        }
        return {
            name: _sum(found, start[name] - sum(start[one] for one in found))
            for name, found in leaders.items()
            if found and not any(leaders[one] for one in found)
        }

    def _place(self, sizes: Sizes) -> str | None:
        """Return the place of a refusal; an empty one where there were enough tries."""
        key = tuple(sizes.values())
        if key not in self._told:
            if len(self._told) >= MOST_TRIES:
                return ""
            self._told[key] = self._refusal(sizes)
        return self._told[key]

    def _grow(self, sizes: dict[str, int], step: int, place: str | None) -> dict[str, int] | None:
        """Enlarge sizes, each once, until the model runs: last axes first, which are lengths.

        Several are enlarged only where each moves the place of the refusal.
        """
        if not place:
            return sizes if place is None else None
        more = [(name, new) for name, size in reversed(sizes.items()) if size == step for new in (2 * step, step + 1)]
        larger = [{**sizes, name: size} for name, size in more]
        places = [self._place(one) for one in larger]
        if None in places:
            return larger[places.index(None)]
        moved = (self._grow(one, step, now) for one, now in zip(larger, places, strict=True) if now != place)
        return next((found for found in moved if found is not None), None)

    def _together(self, start: Sizes, step: int, name: str, alone: Mapping[str, str | None]) -> list[str]:
        """Return the sizes that have to grow with one, itself first; itself alone where they aren't found."""
        moved, place = [name], alone[name]
        while place is not None:
            larger = {one: start[one] + step for one in moved}
            for other in reversed(self._symbols):
                now = self._place({**start, **larger, other: start[other] + step})
                if other not in moved and (now is None or now not in (place, alone[other], "")):
                    break
            else:
                return [name]
            moved.append(other)
            place = now
        return moved


def _sum(names: Sequence[str], more: int) -> str:
    terms = " + ".join(names)
    return f"{terms} {'+' if more > 0 else '-'} {abs(more)}" if more else terms
