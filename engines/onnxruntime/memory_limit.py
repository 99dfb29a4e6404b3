"""Bounds the memory of all sessions of this process together.

They share one arena, and an allocation beyond its limit fails, as an error of the node that asked for it. Weights count
where ONNX Runtime has packed them anew.
"""

from __future__ import annotations

from engines.onnxruntime.library import onnxruntime

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


def limit_memory(max_bytes: int) -> None:
    """Let all sessions that this process opens from now on share so much memory. The first call counts."""
    if not _limits:
        arena = onnxruntime.OrtArenaCfg({"max_mem": max_bytes})
        kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
        place = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
        onnxruntime.create_and_register_allocator(place, arena)
        _limits.append(max_bytes)


def session_options() -> dict[str, str]:
    """Return the options of sessions that heed the limit; none where there is no limit."""
    return {SHARED_ARENA: "1"} if _limits else {}


def is_refusal(message: str) -> bool:
    """Return whether a run failed because it asked for too much memory."""
    return any(part in message for part in REFUSALS)
