"""The gRPC port: the inference service, health and reflection on grpcio's threaded server.

A small thread pool beats asyncio here: measured on two cores, it answers a third more requests at one and at eight
clients. Threads that run models are apart from those that answer everything else, so that health checks never wait for
a slow model.
"""

import functools
import logging
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

import protos
from serving import health
from serving.access import Access
from serving.admission import InferencePool
from serving.cores import FrontCores
from serving.errors import AddressError
from serving.gate import Gate
from serving.logs import logged
from serving.parsing import parser_of
from serving.schema import ServerConfig
from serving.service import InferenceService
from serving.servicer import SERVICE_NAME, SPREAD_RPCS, STREAM_RPC, GrpcServicer, Handler, Spread, messages_of
from serving.streams import Refused, Stream, Streams
from serving.tls import Certificates

logger = logging.getLogger(__name__)

CONTROL_THREADS = 4
REFLECTION_THREADS = 2
FLUSH_S = 3.0
"""How long answers that are already written may take to leave when the port closes: on a crowded machine that has taken
more than a second."""
CLOSE_S = 2.0
"""How long gRPC may take beyond that. It waits forever for a stream of which it could not parse a message."""


class GrpcFront:
    """The gRPC port of one server.

    Attributes:
        port: The port that it listens on, once started.
        methods: What answers each unary RPC but ModelInfer for this process, by its name: request to response.
    """

    def __init__(
        self,
        config: ServerConfig,
        service: InferenceService,
        access: Access,
        pool: InferencePool,
        cores: FrontCores,
        spread: Spread | None = None,
    ) -> None:
        """Read the certificates.

        Args:
            config: Of the port.
            service: Answers.
            access: Decides about calls.
            pool: The threads that run models.
            cores: Where the port's threads run.
            spread: Where several processes share the port, answers ``SPREAD_RPCS`` for all of them.

        Raises:
            TlsError: The certificates can't be used.
        """
        self.port = 0
        self._shares_port = spread is not None
        self._config = config.grpc
        self._certificates = Certificates("grpc", config.grpc.tls) if config.grpc.tls else None
        self._pool = pool
        self._cores = cores
        self._control = InferencePool(CONTROL_THREADS, settle=cores.settle)
        # A client may hold a reflection stream, and with it a thread, for as long as it likes.
        self._reflection = InferencePool(REFLECTION_THREADS, settle=cores.settle)
        # Where requests to load a model wait. The threads of its engines are to run everywhere.
        self._loading = InferencePool(1, settle=cores.leave)
        self._spreading = InferencePool(CONTROL_THREADS, settle=cores.settle)  # where calls wait that all answer
        self._health = health.HealthService()
        self._servicer = servicer = GrpcServicer(service, self._pool.waiting, spread)
        self.methods = servicer.methods
        self._stream_answer = logged(STREAM_RPC, servicer.stream_infer)
        self._stream_refusal = logged(STREAM_RPC, servicer.refuse_streamed)
        self._streams = Streams(self._accept_streamed, config.limits.streams)
        pool.elsewhere = self._control
        self._gate = Gate(access)
        with cores.kept():  # gRPC starts threads here, too
            self._server = grpc.server(
                self._control,
                interceptors=(self._gate,) if access.has_tokens else (),  # they cost each request some microseconds
                options=channel_options(config, shares_port=self._shares_port),
            )
        self._add_services(servicer.handlers())
        self.show_ready(False)

    def start(self) -> None:
        """Open the port.

        Raises:
            AddressError: It can't be opened.
        """
        host, port = self._config.host, self._config.port
        try:
            if not self._shares_port:
                probe(host, port)
            self.port = self._add_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except (OSError, RuntimeError) as error:
            raise AddressError("grpc", host, port, error) from None
        with self._cores.kept():
            self._server.start()

    def show_ready(self, ready: bool) -> None:
        """Tell the clients of the health service."""
        self._health.set((health.OVERALL, SERVICE_NAME), serving=ready)

    def notes(self) -> list[str]:
        """Say what an operator should mend though the server can work."""
        problem = self._certificates and self._certificates.problem()
        return [problem] if problem else []

    def stop(self, timeout_s: float) -> None:
        """Close the port; streams that clients hold open end."""
        self._streams.end()
        grace_s = min(FLUSH_S, timeout_s)
        self._server.stop(grace_s).wait(grace_s + CLOSE_S)
        self._health.close()
        for pool in (self._control, self._reflection, self._streams.pool, self._loading, self._spreading):
            pool.shutdown(wait=False, cancel_futures=True)

    def _add_port(self, address: str) -> int:
        if self._certificates is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, self._certificates.credentials()))

    def _add_services(self, handlers: Mapping[str, Handler]) -> None:
        pools = dict.fromkeys(SPREAD_RPCS, self._spreading) if self._shares_port else {}
        pools["RepositoryModelLoad"] = self._loading
        methods = {
            name: self._gate.closed(name) or _unary(name, _on(pools.get(name, self._control), handler))
            for name, handler in handlers.items()
        }
        refusal = self._control.begins(self._servicer.refusal())
        methods["ModelInfer"] = _unary("ModelInfer", _on(self._pool, handlers["ModelInfer"], refusal))
        methods[STREAM_RPC] = grpc.stream_stream_rpc_method_handler(
            _on(self._streams.pool, self._streams.handle),
            **codec(STREAM_RPC),
        )
        self._server.add_registered_method_handlers(SERVICE_NAME, methods)
        self._server.add_registered_method_handlers(health.SERVICE_NAME, self._health.handlers())
        reflector = reflection.ReflectionServicer(
            (SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), pool=_described_files()
        )
        question = reflection_pb2.ServerReflectionRequest
        stream = grpc.stream_stream_rpc_method_handler(
            _on(self._reflection, reflector.ServerReflectionInfo),
            request_deserializer=parser_of(question, instead=question()),
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        self._server.add_registered_method_handlers(reflection.SERVICE_NAME, {"ServerReflectionInfo": stream})

    def _accept_streamed(self, stream: Stream, request: protos.ModelInferRequest | Refused) -> None:
        if isinstance(request, Refused):
            fail = functools.partial(self._servicer.fail_streamed, request.error)
            stream.run(logged(STREAM_RPC, fail), request.request)
        elif self._pool.admits():
            self._pool.accept(self._pool.begins(stream.run), self._stream_answer, request)
        else:
            stream.run(self._stream_refusal, request)


def probe(host: str, port: int) -> None:
    """Open and close the port once: the operating system says why it can't be had, gRPC only prints a stack of lines.

    Raises:
        OSError: It can't be opened.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    socket.create_server(address[:2], family=family).close()


def _unary(name: str, handler: Handler) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(logged(name, handler), **codec(name))


def codec(name: str) -> dict[str, Any]:
    """Return what reads the requests of an RPC and writes its responses, as gRPC's handlers take it."""
    request, response = messages_of(name)
    return {"request_deserializer": parser_of(request), "response_serializer": response.SerializeToString}


def _on(pool: ThreadPoolExecutor, handler: Handler, refusal: Handler | None = None) -> Handler:
    """Return the handler marked with the pool that grpcio is to run it in, see ``InferencePool.begins``."""
    marked: Any = pool.begins(handler, refusal) if isinstance(pool, InferencePool) else functools.partial(handler)
    marked.experimental_thread_pool = pool
    return marked  # type: ignore[no-any-return]


def _described_files() -> descriptor_pool.DescriptorPool:
    """Return what reflection describes; our own messages aren't in the default pool."""
    pool = descriptor_pool.DescriptorPool()
    for file in (protos.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    return pool


def channel_options(config: ServerConfig, *, shares_port: bool = False) -> list[tuple[str, int]]:
    """Return the settings of the port in gRPC's words."""
    size = config.grpc.max_message_mb << 20
    return [
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
        ("grpc.max_concurrent_streams", config.limits.connection_requests),
        # Where it isn't meant, a second server on this port would start without a word and take connections.
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # for clients that ping to keep a connection
    ]
