"""The version of the installed package."""

from __future__ import annotations

import importlib.metadata

__version__ = importlib.metadata.version("trtnode")
