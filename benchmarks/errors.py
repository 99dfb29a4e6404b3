"""What can be wrong about a measurement that someone asks for."""

from __future__ import annotations

from serving.errors import ServingError


class BenchmarkError(ServingError):
    """Base of this package's errors: bad arguments. Its text is complete and meant for the user."""

    exit_code = 2
