"""The RPCs that Ray's gRPC proxies take. They pass messages on as bytes, so nothing is parsed before the ingress."""

from __future__ import annotations

from typing import Any

import grpc

from trtnode.serving.grpc.health import SERVICE_NAME as HEALTH_SERVICE
from trtnode.serving.service.rpc_table import SERVICE_NAME, STREAM_RPC, UNARY_RPCS

ADDED = "trtnode.serving.ray_serve.proxy_methods:add_to_server"
"""The import path that Ray's proxies find the RPCs by."""

HEALTH_CHECK, HEALTH_WATCH = "Check", "Watch"


def add_to_server(servicer: Any, server: Any) -> None:
    """Add both services to the gRPC server of a proxy, as generated code does; the proxy replaces the handlers."""
    inference = {name: grpc.unary_unary_rpc_method_handler(getattr(servicer, name)) for name in UNARY_RPCS}
    inference[STREAM_RPC] = grpc.stream_stream_rpc_method_handler(getattr(servicer, STREAM_RPC))
    health = {
        HEALTH_CHECK: grpc.unary_unary_rpc_method_handler(getattr(servicer, HEALTH_CHECK)),
        HEALTH_WATCH: grpc.unary_stream_rpc_method_handler(getattr(servicer, HEALTH_WATCH)),
    }
    for service, handlers in ((SERVICE_NAME, inference), (HEALTH_SERVICE, health)):
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
