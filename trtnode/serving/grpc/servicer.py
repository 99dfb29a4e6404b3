"""The unary RPCs of the gRPC port: inference, and every other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trtnode.protos import ModelInferRequest
from trtnode.serving.grpc.rpc import MOST_BYTES, Rpc, answering_in, parser_of
from trtnode.serving.protocol.parameters import SequenceMark, take_sequence
from trtnode.serving.protocol.request_cache import ParsedRequest, RequestCache
from trtnode.serving.protocol.shared_memory import SharedMemory
from trtnode.serving.protocol.wire_signature import WireSignature
from trtnode.serving.service.call import Call
from trtnode.serving.service.host import ModelHost
from trtnode.serving.service.inference import Inference
from trtnode.serving.service.rpc_table import INFER_RPC, messages_of, pool_of


class GrpcInference(Inference):
    """An inference request as a protocol message; see ``Inference``."""

    __slots__ = ()

    def __init__(self, request: ModelInferRequest, call: Call) -> None:
        super().__init__(call, request.model_name, request.model_version, request.id)

    def sequence_mark(self, signature: Callable[[], WireSignature]) -> SequenceMark:  # noqa: ARG002  (REST needs it)
        """Take what the request says of its sequence out of it."""
        return take_sequence(self.call.request.parameters)

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

    is_broadcast = host.rpcs.is_broadcast
    handlers = {
        rpc: answering_in(pool_of(rpc, host.pools, is_broadcast=is_broadcast), rpc, method)
        for rpc, method in host.rpcs.shared_methods.items()
    }
    handlers[INFER_RPC] = infer
    cut = {INFER_RPC: ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER}
    return {
        rpc: Rpc(rpc, parser_of(messages_of(rpc)[0]), handler, host.authorizer, cut.get(rpc, 0), most)
        for rpc, handler in handlers.items()
    }
