"""Reflection: the services of the port and their messages, for clients that have no files of them."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from trtnode import protos
from trtnode.serving.grpc.health import SERVICE_NAME as HEALTH
from trtnode.serving.grpc.rpc import Rpc, answering_in, parser_of
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.rpc_table import SERVICE_NAME as INFERENCE
from trtnode.serving.threads.request_pool import RequestPool

SERVICES = (INFERENCE, HEALTH, reflection.SERVICE_NAME)
RPC = "ServerReflectionInfo"
METHOD = f"{reflection.SERVICE_NAME}/{RPC}"


def reflection_rpc(pool: RequestPool, authorizer: Authorizer) -> Rpc:
    """Return what answers a stream of questions in a pool."""

    def answer(question: Any, _caller: Grant) -> Any:
        return next(_reflector().ServerReflectionInfo(iter((question,)), None))

    return Rpc(RPC, parser_of(reflection_pb2.ServerReflectionRequest), answering_in(pool, RPC, answer), authorizer)


@functools.cache
def _reflector() -> reflection.ReflectionServicer:
    """Return what describes the messages; our own aren't in the default pool."""
    pool = descriptor_pool.DescriptorPool()
    for file in (protos.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    return reflection.ReflectionServicer(SERVICES, pool=pool)
