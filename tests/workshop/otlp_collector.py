"""A collector of spans that takes them over OTLP, as a real one does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

PATIENCE_S = 120


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans. ``wait`` returns those of a trace once its request's span is there."""

    def __init__(self) -> None:
        self._spans: list[Any] = []
        self._changed = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        with self._changed:
            for resource in request.resource_spans:
                self._spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self._changed.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def requests(self, count: int = 1) -> list[Any]:
        """Return the spans of requests, as soon as there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._whole()) >= count, PATIENCE_S), self._spans
            return self._whole()

    def of_trace(self, trace: str) -> list[Any]:
        """Return the spans of requests of one trace, as soon as there is one."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._of(trace), PATIENCE_S), self._spans
            return self._of(trace)

    def parts(self, span: Any) -> dict[str, Any]:
        """Return the spans right below another one, by name."""
        with self._changed:
            return {one.name: one for one in self._spans if one.parent_span_id == span.span_id}

    def close(self) -> None:
        self._server.stop(None)

    def _whole(self) -> list[Any]:
        return [span for span in self._spans if span.name == "infer"]

    def _of(self, trace: str) -> list[Any]:
        return [span for span in self._whole() if span.trace_id.hex() == trace]
