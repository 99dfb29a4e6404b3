"""A report that people read: as text, and as a picture in a notebook."""

from __future__ import annotations

import base64
import dataclasses
from typing import Self

from trtnode.engines.sparse.survey import survey
from trtnode.partitioner.cut.partition import Partition
from trtnode.partitioner.cut.report import Report
from trtnode.serving.cli.terminal.report import native_causes, sentences, verdict_of
from trtnode.serving.pages.explain_page import render_page

MOST_LINES = 10

MOST_URL_BYTES = 2_000_000
"""Longest address that browsers open in a frame. A notebook shows a larger picture's report as text."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(Report):
    """A report whose text is its verdict, what runs where, and why nodes run natively.

    ``partition`` is what the report is about; without it, there is no picture.
    """

    partition: Partition | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def of(cls, report: Report, partition: Partition | None = None) -> Self:
        """Return a report with the partition that it is about."""
        facts = {field.name: getattr(report, field.name) for field in dataclasses.fields(Report)}
        return cls(**facts, partition=partition)

    def __str__(self) -> str:
        causes = [f"{nodes}. {detail}".rstrip() for nodes, detail in native_causes(self)]
        lines = [*verdict_of(self), sentences(self), *causes]
        more = len(lines) - MOST_LINES
        return "\n".join(lines if more <= 0 else [*lines[: MOST_LINES - 1], f"... and {more + 1} more causes"])

    def _repr_html_(self) -> str | None:
        """Return the page of ``trtnode explain --html`` in a frame, for notebooks."""
        if self.partition is None:
            return None
        page = render_page(self.partition, self, survey(self.partition.graph))
        address = f"data:text/html;charset=utf-8;base64,{base64.b64encode(page.encode()).decode()}"
        if len(address) > MOST_URL_BYTES:
            return None
        return f'<iframe src="{address}" title="Explanation" style="width: 100%; height: 42em; border: 0"></iframe>'
