"""The handlers of gRPC's calls: inference, streams of it, and every other unary RPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trtnode.protos import ModelInferRequest
from trtnode.serving.grpc.codec import MOST_BYTES, parser_of
from trtnode.serving.grpc.unary_rpc import Answer, UnaryRpc
from trtnode.serving.protocol.request_cache import ParsedRequest, RequestCache
from trtnode.serving.protocol.shared_memory import SharedMemory
from trtnode.serving.service.call import Call
from trtnode.serving.service.host import ModelHost
from trtnode.serving.service.inference import Inference
from trtnode.serving.service.rpc_table import INFER_RPC, messages_of, pool_of
from trtnode.serving.service.unary_rpcs import Method

RAW_FIELDS = {INFER_RPC: ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER}
"""The field of an RPC's requests that is cut out of long ones."""


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


class GrpcServicer:
    """Makes the handlers of ``inference.GRPCInferenceService``."""

    def __init__(self, host: ModelHost) -> None:
        self._service = host.service
        self._pools = host.pools
        self._rpcs = host.rpcs
        self._authorizer = host.authorizer

    def unary_rpcs(self, most: int = MOST_BYTES) -> dict[str, UnaryRpc]:
        """Return each unary RPC, by its name.

        Args:
            most: Bytes that a compressed request may stand for.
        """
        answers = {rpc: self._in_pool(rpc, method) for rpc, method in self._rpcs.shared_methods.items()}
        answers[INFER_RPC] = self._infer
        return {
            rpc: UnaryRpc(rpc, parser_of(messages_of(rpc)[0]), answer, self._authorizer, RAW_FIELDS.get(rpc, 0), most)
            for rpc, answer in answers.items()
        }

    def _in_pool(self, rpc: str, method: Method) -> Answer:
        pool = pool_of(rpc, self._pools, is_broadcast=self._rpcs.is_broadcast)

        def answer(request: Any, call: Call) -> None:
            call.watch()
            pool.run(lambda: call.answer_rpc(rpc, request, lambda: method(request).SerializeToString()))

        return answer

    def _infer(self, request: ModelInferRequest, call: Call) -> None:
        self._service.accept(GrpcInference(request, call))
