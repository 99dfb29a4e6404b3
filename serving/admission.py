"""Bounds the inference requests in the server, and knows when the last one is answered."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc


class InferencePool(ThreadPoolExecutor):
    """The threads that run inference requests.

    A small pool: the model releases the interpreter lock while it computes, and more threads only take it from each
    other.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="infer")
        self.in_flight = 0
        """Requests that were accepted and are not answered yet, whether they run or wait for a thread."""
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Accept a request."""
        with self._lock:
            self.in_flight += 1
        return super().submit(self._answer, fn, args, kwargs)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; return False if that takes longer."""
        with self._idle:
            return self._idle.wait_for(lambda: self.in_flight == 0, timeout_s)

    def _answer(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            fn(*args, **kwargs)
        finally:
            with self._lock:
                self.in_flight -= 1
                if self.in_flight == 0:
                    self._idle.notify_all()


class Admission(grpc.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
    """Refuses inference requests on arrival, before they wait for a thread.

    gRPC calls it in the one thread that takes new requests off the wire, so a count that it reads doesn't rise before
    the request that it lets through is submitted.
    """

    def __init__(self, pool: InferencePool, method: str, max_requests: int, refusal: grpc.RpcMethodHandler) -> None:
        self.closed = False
        """Whether to refuse every request."""
        self._pool = pool
        self._method = method
        self._max_requests = max_requests
        self._refusal = refusal

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """Return the request's handler, or the refusal."""
        if handler_call_details.method == self._method and (self.closed or self._pool.in_flight >= self._max_requests):
            return self._refusal
        return continuation(handler_call_details)
