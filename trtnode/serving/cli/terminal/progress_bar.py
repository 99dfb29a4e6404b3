"""Shows how far a build is, on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich import progress as rich_progress
from rich.markup import escape

from trtnode.engines.backends.progress import Progress, listening
from trtnode.serving.cli.terminal.console import open_console


def _columns() -> Iterator[rich_progress.ProgressColumn]:
    """Yield new columns: they remember what they drew."""
    yield rich_progress.TextColumn("{task.description}")
    yield rich_progress.BarColumn()
    yield rich_progress.TimeElapsedColumn()
    yield rich_progress.TextColumn("left")
    yield rich_progress.TimeRemainingColumn()


@contextlib.contextmanager
def showing_progress(work: str) -> Iterator[None]:
    """Draw a bar for all the work, and one a phase, on stderr while the block runs.

    Where that is no terminal, phases are logged instead.

    Args:
        work: The first word on the screen.
    """
    console = open_console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with rich_progress.Progress(*_columns(), console=console, transient=True) as bars, listening(_Bars(bars).show):
        bars.add_task(work, total=None)
        yield


class _Bars:
    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, rich_progress.TaskID] = {}

    def show(self, progress: Progress) -> None:
        """Draw a phase with what it works on, or remove the bar of one that is over."""
        description = escape(f"{progress.phase} {progress.what}".rstrip())
        if progress.phase not in self._tasks:
            self._tasks[progress.phase] = self._bars.add_task(description, total=progress.total)
        task = self._tasks[progress.phase]
        self._bars.update(task, completed=progress.done, total=progress.total, description=description)
        if progress.done >= progress.total:
            self._bars.remove_task(self._tasks.pop(progress.phase))
