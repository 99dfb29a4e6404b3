"""Runs ONNX models at engine speed, from Python: explain, compile, load and serve.

A name is imported on first use, so that ``import trtnode`` costs no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import partitioner.lazy_names

if TYPE_CHECKING:
    from trtnode.models import compile, explain, load  # noqa: A004
    from trtnode.server import RunningServer, serve
    from trtnode.version import __version__

__all__ = ["RunningServer", "__version__", "compile", "explain", "load", "serve"]

_HOMES = {
    "RunningServer": "trtnode.server:RunningServer",
    "__version__": "trtnode.version:__version__",
    "compile": "trtnode.models:compile",
    "explain": "trtnode.models:explain",
    "load": "trtnode.models:load",
    "serve": "trtnode.server:serve",
}
"""The module and the name there of each public name."""

__getattr__, __dir__ = partitioner.lazy_names.names_on_first_use(__name__, _HOMES)
