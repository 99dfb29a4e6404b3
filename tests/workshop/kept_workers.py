"""Worker processes that tests hand on: a fresh one imports the engine libraries, which takes seconds."""

from __future__ import annotations

import logging
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Hashable
from typing import Any

import trtnode
from trtnode.engines.build import subprocess_worker
from trtnode.engines.build.subprocess_worker import SubprocessWorker

ROOT = pathlib.Path(trtnode.__file__).parent

MOST = 3
"""Idle workers that are kept."""

idle: list[tuple[Hashable, SubprocessWorker]] = []
"""Workers without work, each with what it was started with."""

lending = threading.Lock()


def places() -> list[str]:
    """Return the names under which modules of engines and of the server start workers."""
    files = (file for folder in ("engines", "serving") for file in (ROOT / folder).rglob("*.py"))
    others = (file for file in files if file.stem != "subprocess_worker")
    starting = (file for file in others if "SubprocessWorker(" in file.read_text(encoding="utf-8"))
    modules = (".".join(("trtnode", *file.relative_to(ROOT).with_suffix("").parts)) for file in starting)
    return [f"{module}.SubprocessWorker" for module in modules]


class LentWorker:
    """A worker that another test has left, or a new one. When it is closed, its process waits for the next test."""

    is_clean = False  # whoever else would keep it closes it at once

    def __init__(self, **limits: Any) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        cores = frozenset(os.sched_getaffinity(0))
        self._key = (*limits.items(), *environment.items(), *sys.path, os.getcwd(), cores)  # noqa: PTH109
        self._cancelled = False
        with lending:
            kept = next((one for one in idle if one[0] == self._key), (self._key, SubprocessWorker(**limits)))
            if kept in idle:
                idle.remove(kept)
        self._worker: SubprocessWorker | None = kept[1]

    def __enter__(self) -> LentWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, function: Callable[..., Any], timeout_s: float, /, *args: Any, **kwargs: Any) -> Any:
        self._worker.call(keep_workers, timeout_s, subprocess_worker._lowest_level())
        return self._worker.call(function, timeout_s, *args, **kwargs)

    def cancel(self) -> None:
        self._cancelled = True
        self._worker.cancel()

    def close(self) -> None:
        with lending:
            worker, self._worker = self._worker, None
            if worker is not None and not self._cancelled:
                idle.append((self._key, worker))
                worker = idle.pop(0)[1] if len(idle) > MOST else None
        if worker is not None:
            worker.close()


def keep_workers(log_level: int) -> None:
    """Have this process, which is a worker, keep those that it starts, and log as whoever lends it."""
    subprocess_worker.SubprocessWorker = LentWorker
    logging.getLogger("trtnode").setLevel(log_level)
