"""Reflection: the services of the port and their messages, for clients that have no files of them.

Imported when somebody first asks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from trtnode import protos
from trtnode.serving.grpc.codec import parser_of
from trtnode.serving.grpc.health import SERVICE_NAME as HEALTH
from trtnode.serving.service.rpc_table import SERVICE_NAME as INFERENCE

SERVICES = (INFERENCE, HEALTH, reflection.SERVICE_NAME)


def reflect(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """Answer a stream of questions; both are serialized."""
    question = reflection_pb2.ServerReflectionRequest
    questions = map(parser_of(question, instead=question()), requests)
    for answer in _reflector().ServerReflectionInfo(questions, context):
        yield answer.SerializeToString()


@functools.cache
def _reflector() -> reflection.ReflectionServicer:
    """Return what describes the messages; our own aren't in the default pool."""
    pool = descriptor_pool.DescriptorPool()
    for file in (protos.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    return reflection.ReflectionServicer(SERVICES, pool=pool)
