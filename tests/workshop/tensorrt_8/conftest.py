"""Tests of the adapter for TensorRT 8.6."""

from __future__ import annotations

collect_ignore = ["library", "stand_in_library"]  # packages for other processes, under the library's name
