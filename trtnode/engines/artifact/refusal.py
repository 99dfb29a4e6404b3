"""A lasting answer of an engine library or of a check: this segment is not to be built."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A segment that a backend refused, or computed wrong.

    Attributes:
        code: Of the reason.
        detail: The reason, in the library's words.
        culprits: Positions in the segment of the nodes that cause it, with the reason and its code for each; empty
            for all.
        lasting: True if another build of the segment would be refused too. Only such a refusal is kept.
        divisible: True if builds of parts of the segment could tell more.
    """

    code: str
    detail: str
    culprits: tuple[tuple[int, str, str], ...] = ()
    lasting: bool = True
    divisible: bool = dataclasses.field(default=True, compare=False)

    def reasons(self, nodes: int) -> dict[int, tuple[str, str]]:
        """Return code and reason for each node that causes it, by position in a segment of so many nodes."""
        found = {position: (code, detail) for position, detail, code in self.culprits}
        return found or dict.fromkeys(range(nodes), (self.code, self.detail))
