"""The answers of a whole cluster: from a replica of the model that a request names, or from all of them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve.exceptions import RayServeException

from trtnode.engines.artifact.cache import builder_version
from trtnode.protos import (
    ModelReadyRequest,
    ModelReadyResponse,
    ServerLiveResponse,
    ServerMetadataResponse,
    ServerReadyResponse,
)
from trtnode.serving.errors import NotFoundError, UnavailableError, UnreadableMessageError, UnsupportedError
from trtnode.serving.grpc.rpc import UNREADABLE, parser_of
from trtnode.serving.ray_serve.messages import Caller, Failure, HttpAnswer, HttpRequest, Reply
from trtnode.serving.ray_serve.state import ClusterState
from trtnode.serving.security.authorization import MODEL_FIELDS
from trtnode.serving.service.inference_service import EXTENSIONS
from trtnode.serving.service.rpc_table import messages_of
from trtnode.serving.service.status import status_of
from trtnode.serving.workers.merged_answers import COMBINATIONS
from trtnode.serving.workers.merged_metrics import Families

REPLICAS_S = 5.0
"""The longest time that all replicas may take to answer about themselves."""

FORWARDED = ("ModelInfer", "ModelMetadata", "ModelConfig")
"""The RPCs that one replica of the model answers."""


class Cluster:
    """Answers RPCs for all replicas of all models. For one event loop.

    Attributes:
        state: The replicas that there are.
    """

    def __init__(self, replicas: Mapping[str, Any], state: ClusterState, name: str) -> None:
        """Prepare.

        Args:
            replicas: The deployment handle of each model, by its name.
            state: The replicas that there are.
            name: What the server calls itself.
        """
        # By gRPC: Ray's object store would copy large tensors.
        self._replicas = {name: handle.options(_by_reference=False) for name, handle in replicas.items()}
        self.state = state
        self._name = name
        self._own: Mapping[str, Callable[[Any], Awaitable[Any]]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ServerMetadata": self._metadata,
            "ModelReady": self._model_ready,
            **{rpc: functools.partial(self._combined, rpc) for rpc in COMBINATIONS},
        }

    async def answer(self, rpc: str, message: bytes, caller: Caller) -> Reply:
        """Answer a unary RPC of a client that may use it; what goes wrong stands in the reply."""
        try:
            request = read_request(rpc, message)
            if rpc in FORWARDED:
                name = getattr(request, MODEL_FIELDS[rpc])
                return await _of_a_replica(self._replica(name).answer, rpc, message, caller)  # type: ignore[no-any-return]
            if rpc not in self._own:
                raise UnsupportedError(f"{rpc} is about one process, and this server is a Ray cluster")
            response = await self._own[rpc](request)
            return bytes(response.SerializeToString())
        except Exception as error:
            code, details = status_of(error, rpc)
            return Failure(code.name, details)

    async def answer_http(self, name: str, request: HttpRequest) -> HttpAnswer:
        """Have a replica answer a request about its model.

        Raises:
            NotFoundError: There is no such model.
            UnavailableError: No replica answers.
        """
        answer: HttpAnswer = await _of_a_replica(self._replica(name).answer_http, request)
        return answer

    async def metrics(self) -> list[Families]:
        """Return the counts of each replica of all models.

        Raises:
            UnavailableError: A replica doesn't tell.
        """
        asked = (_of_all(handle, "metrics") for handle in self._replicas.values())
        return [families for replies in await asyncio.gather(*asked) for families in replies]

    def _replica(self, name: str) -> Any:
        if name not in self._replicas:
            raise NotFoundError(
                f"Request for unknown model: {name[:255]!r} is not found; "
                f"this server has {', '.join(sorted(self._replicas))}"
            )
        return self._replicas[name]

    async def _live(self, _request: Any) -> ServerLiveResponse:
        return ServerLiveResponse(live=True)

    async def _ready(self, _request: Any) -> ServerReadyResponse:
        return ServerReadyResponse(ready=not await self.state.not_ready())

    async def _metadata(self, _request: Any) -> ServerMetadataResponse:
        return ServerMetadataResponse(name=self._name, version=builder_version(), extensions=EXTENSIONS)

    async def _model_ready(self, request: ModelReadyRequest) -> ModelReadyResponse:
        if request.name not in self._replicas or await self.state.lacks(request.name):
            return ModelReadyResponse(ready=False)
        ask = self._replica(request.name).answer
        reply = await _of_a_replica(ask, "ModelReady", request.SerializeToString(), NOBODY)
        return ModelReadyResponse.FromString(_message_of(reply))

    async def _combined(self, rpc: str, request: Any) -> Any:
        """Return what all replicas say together: of one model if the request names one, else of all."""
        name = getattr(request, "name", "")
        handles = [self._replica(name)] if name else list(self._replicas.values())
        kind = messages_of(rpc)[1]
        whole = kind()
        message = request.SerializeToString()
        for replies in await asyncio.gather(*(_of_all(handle, "answer", rpc, message, NOBODY) for handle in handles)):
            whole.MergeFrom(COMBINATIONS[rpc]([kind.FromString(_message_of(reply)) for reply in replies]))
        return whole


class ReplicaEndedError(UnavailableError):
    """A replica ended before it answered."""

    def __init__(self) -> None:
        super().__init__("the replicas that had the request have ended; send it again")


NOBODY = Caller("", ())
"""The caller of what the ingress itself asks."""


def read_request(rpc: str, message: bytes) -> Any:
    """Return the request of an RPC.

    Raises:
        UnreadableMessageError: The message is no such request.
    """
    request = _parser(rpc)(message)
    if request is UNREADABLE:
        raise UnreadableMessageError(rpc)
    return request


@functools.cache
def _parser(rpc: str) -> Callable[[bytes], Any]:
    return parser_of(messages_of(rpc)[0])


async def _of_a_replica(method: Any, *arguments: Any) -> Any:
    """Return the answer of a replica, or of another one where the first ends before it answers.

    That is safe, since what replicas are asked changes nothing in them. There is no third, so a request that ends
    replicas ends two.

    Raises:
        UnavailableError: None answers.
    """
    try:
        return await _answer_of(method.remote(*arguments))
    except ReplicaEndedError:
        return await _answer_of(method.remote(*arguments))


async def _answer_of(asked: Any) -> Any:
    """Wait for the answer of a replica.

    Raises:
        ReplicaEndedError: It ended before.
        UnavailableError: Too many requests wait, or it takes too long.
    """
    try:
        return await asked
    except RayTaskError:
        raise  # a fault of the replica's code
    except RayActorError as error:
        raise ReplicaEndedError from error
    except (RayError, RayServeException, TimeoutError) as error:
        raise UnavailableError(f"no replica answered ({type(error).__name__}); send the request again") from error


async def _of_all(handle: Any, method: str, *arguments: Any) -> list[Any]:
    """Return what each replica of a model answers; it is never asked to infer."""
    replies = handle.broadcast(method, *arguments).results_async(timeout_s=REPLICAS_S)
    return list(await _answer_of(replies))


def _message_of(reply: Reply) -> bytes:
    if isinstance(reply, Failure):
        raise UnavailableError(reply.details)
    return reply
