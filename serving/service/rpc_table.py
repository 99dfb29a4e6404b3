"""The RPCs of the inference service: their messages, and the pool that answers each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from trtnode import protos
from trtnode.protos import DESCRIPTOR
from trtnode.serving.threads.pools import ThreadPools
from trtnode.serving.threads.request_pool import RequestPool

_SERVICE = DESCRIPTOR.services_by_name["GRPCInferenceService"]
SERVICE_NAME = _SERVICE.full_name
INFER_RPC = "ModelInfer"
STREAM_RPC = "ModelStreamInfer"

Message = Any
"""The class of a protocol message."""


class Pool(enum.StrEnum):
    """The attributes of ``ThreadPools`` that answer RPCs, and the streams of the gRPC port."""

    INFERENCE = "inference"
    CONTROL = "control"
    LOADING = "loading"
    BROADCAST = "broadcast"
    STREAMS = "streams"


POOLS: Mapping[str, Pool] = {
    INFER_RPC: Pool.INFERENCE,
    STREAM_RPC: Pool.STREAMS,
    "ServerLive": Pool.CONTROL,
    "ServerReady": Pool.CONTROL,
    "ServerMetadata": Pool.CONTROL,
    "ModelReady": Pool.CONTROL,
    "ModelMetadata": Pool.CONTROL,
    "ModelConfig": Pool.CONTROL,
    "ModelStatistics": Pool.BROADCAST,
    "RepositoryIndex": Pool.BROADCAST,
    "RepositoryModelLoad": Pool.LOADING,
    "RepositoryModelUnload": Pool.BROADCAST,
    "SystemSharedMemoryStatus": Pool.CONTROL,
    "SystemSharedMemoryRegister": Pool.BROADCAST,
    "SystemSharedMemoryUnregister": Pool.BROADCAST,
    "CudaSharedMemoryStatus": Pool.CONTROL,
    "CudaSharedMemoryRegister": Pool.BROADCAST,
    "CudaSharedMemoryUnregister": Pool.BROADCAST,
    "TraceSetting": Pool.BROADCAST,
    "LogSettings": Pool.BROADCAST,
}
"""The pool of each RPC. In a server of one process nobody is waited for, so control answers those of broadcast."""

BROADCAST_RPCS = frozenset({*(rpc for rpc, pool in POOLS.items() if pool is Pool.BROADCAST), "RepositoryModelLoad"})
"""RPCs whose effect or answer is about all processes that share a port."""


def pool_of(rpc: str, pools: ThreadPools, *, is_broadcast: bool) -> RequestPool:
    """Return the pool that answers a unary RPC.

    Args:
        rpc: Name of the RPC.
        pools: Of this process.
        is_broadcast: Whether several processes share the port.
    """
    pool = POOLS[rpc]
    if pool is Pool.BROADCAST and not is_broadcast:
        pool = Pool.CONTROL
    chosen: RequestPool = getattr(pools, pool)
    return chosen


def messages_of(rpc: str) -> tuple[Message, Message]:
    """Return the classes of an RPC's request and response."""
    method = _SERVICE.methods_by_name[rpc]
    return getattr(protos, method.input_type.name), getattr(protos, method.output_type.name)
