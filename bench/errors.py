"""The base of the benchmarks' errors."""

from __future__ import annotations

from trtnode.serving.errors import ServingError


class BenchmarkError(ServingError):
    """Base of this package's errors, by default about arguments. The text is complete and meant for the user."""

    exit_code = 2
