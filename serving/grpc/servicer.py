"""The unary RPCs of the gRPC port: inference, and every other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trtnode.protos import ModelInferRequest
from trtnode.serving.grpc.rpc import MOST_BYTES, Handler, Rpc, parser_of
from trtnode.serving.protocol.request_cache import ParsedRequest, RequestCache
from trtnode.serving.protocol.shared_memory import SharedMemory
from trtnode.serving.service.call import Call
from trtnode.serving.service.host import ModelHost
from trtnode.serving.service.inference import Inference
from trtnode.serving.service.rpc_table import INFER_RPC, messages_of, pool_of
from trtnode.serving.service.unary_rpcs import Method


class GrpcInference(Inference):
    """An inference request as a protocol message; see ``Inference``."""

    __slots__ = ()

    def __init__(self, request: ModelInferRequest, call: Call) -> None:
        super().__init__(call, request.model_name, request.model_version, request.id)

    def read(self, cache: RequestCache, memory: SharedMemory) -> ParsedRequest:
        """Return the request as arrays that fit the model."""
        return cache.read(self.call.request, memory, self.call.raw)

    def write(self, cache: RequestCache, request: ParsedRequest, arrays: Sequence[np.ndarray]) -> bytes:
        """Return the response."""
        return cache.encode(request, arrays, self.id)


def unary_rpcs(host: ModelHost, most: int = MOST_BYTES) -> dict[str, Rpc]:
    """Return each unary RPC of ``inference.GRPCInferenceService``, by its name.

    Args:
        host: Answers.
        most: Bytes that a compressed request may stand for.
    """

    def infer(request: ModelInferRequest, call: Call) -> None:
        host.service.accept(GrpcInference(request, call))

    answers = {rpc: _in_pool(host, rpc, method) for rpc, method in host.rpcs.shared_methods.items()}
    answers[INFER_RPC] = infer
    cut = {INFER_RPC: ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER}
    return {
        rpc: Rpc(rpc, parser_of(messages_of(rpc)[0]), answer, host.authorizer, cut.get(rpc, 0), most)
        for rpc, answer in answers.items()
    }


def _in_pool(host: ModelHost, rpc: str, method: Method) -> Handler:
    pool = pool_of(rpc, host.pools, is_broadcast=host.rpcs.is_broadcast)

    def answer(request: Any, call: Call) -> None:
        call.watch()
        pool.run(lambda: call.answer_rpc(rpc, request, lambda: method(request, call.grant).SerializeToString()))

    return answer
