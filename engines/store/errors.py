"""The error inside the shared store, which nobody outside sees."""

from __future__ import annotations


class StoreError(Exception):
    """The store fails, which the log says already."""
