"""The RPCs of the inference service: their messages, and the pool that answers each."""

from __future__ import annotations

from typing import Any

from trtnode import protos
from trtnode.protos import DESCRIPTOR
from trtnode.serving.threads.pools import ThreadPools
from trtnode.serving.threads.request_pool import RequestPool

_SERVICE = DESCRIPTOR.services_by_name["GRPCInferenceService"]
SERVICE_NAME = _SERVICE.full_name
INFER_RPC = "ModelInfer"
STREAM_RPC = "ModelStreamInfer"
LOAD_RPC = "RepositoryModelLoad"
UNARY_RPCS = tuple(rpc for rpc in _SERVICE.methods_by_name if rpc != STREAM_RPC)

BROADCAST_RPCS = frozenset({
    LOAD_RPC, "RepositoryModelUnload", "RepositoryIndex", "ModelStatistics", "TraceSetting", "LogSettings",
    "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
    "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
})  # fmt: skip
"""RPCs whose effect or answer is about all processes that share a port."""

Message = Any
"""The class of a protocol message."""


def pool_of(rpc: str, pools: ThreadPools, *, is_broadcast: bool) -> RequestPool:
    """Return the pool that answers a unary RPC but ModelInfer.

    Args:
        rpc: Name of the RPC.
        pools: Of this process.
        is_broadcast: Whether several processes share the port.
    """
    if rpc == LOAD_RPC:
        return pools.loading
    return pools.broadcast if is_broadcast and rpc in BROADCAST_RPCS else pools.control


def messages_of(rpc: str) -> tuple[Message, Message]:
    """Return the classes of an RPC's request and response."""
    method = _SERVICE.methods_by_name[rpc]
    return getattr(protos, method.input_type.name), getattr(protos, method.output_type.name)
