"""Bounds the memory of all sessions of this process together.

They share one arena, and an allocation beyond its limit fails, as an error of the node that asked for it. Weights count
where ONNX Runtime has packed them anew.
"""

from __future__ import annotations

import functools
import threading

from trtnode.engines.onnxruntime.library import onnxruntime

SHARED_ARENA = "session.use_env_allocators"
"""Session option: take memory from the arena of the process."""

REFUSALS = (
    "Available memory of",
    "bad allocation",
    "bad_alloc",
    "Failed to allocate memory",
    "overflow",
    "exceeds the supported maximum",
)
"""Parts of ONNX Runtime's messages on allocations that fail, and on sizes beyond 64 bits."""

_limits: list[int] = []
_registering = threading.Lock()


def limit_memory(max_bytes: int) -> None:
    """Let all sessions that this process opens from now on share so much memory. The first call counts."""
    if not _limits:
        _limits.append(max_bytes)


def limit_bytes() -> int | None:
    """Return the limit; None where there is none."""
    return _limits[0] if _limits else None


def session_options() -> dict[str, str]:
    """Return the options of sessions that heed the limit; none where there is no limit."""
    if not _limits:
        return {}
    with _registering:
        _register_arena(_limits[0])
    return {SHARED_ARENA: "1"}


@functools.cache
def _register_arena(max_bytes: int) -> None:
    """Make the arena of the process, once. That imports ONNX Runtime, which engines alone do without."""
    arena = onnxruntime.OrtArenaCfg({"max_mem": max_bytes})
    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(place, arena)


def is_refusal(message: str) -> bool:
    """Return whether a run failed because it asked for too much memory."""
    return any(part in message for part in REFUSALS)
