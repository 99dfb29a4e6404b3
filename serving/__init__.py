"""Serves models over gRPC, and the ``trtnode`` program.

Only what every command needs is imported here; the server and what it stands on are imported when it runs.
"""

from __future__ import annotations

from serving.cli.command import Command, lazy
from serving.errors import ConfigError, ServingError

__all__ = ["Command", "ConfigError", "ServingError", "lazy"]
