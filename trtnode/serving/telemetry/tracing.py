"""Spans of inference requests for OpenTelemetry, made when a request has ended from times that are taken anyway.

A client's own trace goes on where its request brings a ``traceparent`` (W3C Trace Context). Which other requests are
traced is up to OpenTelemetry's sampler (``OTEL_TRACES_SAMPLER``) and to the trace rate that clients may set. This
module needs the extra ``tracing``.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterable, Mapping

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from trtnode.serving.telemetry.request_stats import Durations, Execution

SERVICE_NAME = "trtnode"
FLUSH_S = 2.0
"""The longest time that the last spans may take to leave when the server stops."""

Headers = Iterable[tuple[str, str | bytes]]
"""The metadata, or the headers, that came with a request."""

_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """Makes the spans of requests and sends them to a collector. Thread-safe.

    Attributes:
        enabled: Whether requests are traced at all.
        rate: One in so many is traced, of the requests that bring no trace of their client's.
    """

    def __init__(self, otlp_endpoint: str, version: str) -> None:
        """Prepare to send.

        Args:
            otlp_endpoint: URL of a collector (OTLP over gRPC). OpenTelemetry logs if it can't be reached.
            version: Of this program.
        """
        self.enabled = True
        self.rate = 1
        self._count = itertools.count()
        name = os.environ.get("OTEL_SERVICE_NAME", SERVICE_NAME)
        resource = Resource.create({"service.name": name, "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint=otlp_endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(SERVICE_NAME, version)

    def begin(self, headers: Headers) -> RequestTrace | None:
        """Begin the trace of a request that has just come; None if it isn't to be traced."""
        if not self.enabled:
            return None
        carrier = {key: value for key, value in headers if key in _PROPAGATOR.fields}
        if not carrier and next(self._count) % self.rate:
            return None
        span = self._tracer.start_span("infer", _PROPAGATOR.extract(carrier), kind=SpanKind.SERVER)
        return RequestTrace(self._tracer, span) if span.is_recording() else None

    def close(self) -> None:
        """Send what is left. A collector that is away would be tried again for longer than the server has."""
        end = threading.Timer(FLUSH_S, self._exporter.shutdown)
        end.start()
        self._provider.shutdown()
        end.cancel()


class RequestTrace:
    """The span of one request; those of its parts are made when it ends."""

    __slots__ = ("_clock_ns", "_span", "_tracer")

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._clock_ns = time.time_ns() - time.perf_counter_ns()

    def add_phase(self, name: str, began_ns: int, ended_ns: int) -> None:
        """Make the span of a part of the request; times are those of ``time.perf_counter_ns``."""
        self._add(self._span, name, began_ns, ended_ns, {})

    def fail(self, error: BaseException) -> None:
        """Note why the request failed."""
        self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.set_attribute("error.type", type(error).__name__)

    def end(self, request_id: str, facts: Mapping[str, str], durations: Durations) -> None:
        """End the span of a request that was answered, or failed.

        Args:
            request_id: As the client chose it; empty for none.
            facts: Attributes of the span.
            durations: Its times; those of its execution make spans of their own.
        """
        self._span.set_attributes(facts)
        if request_id:
            self._span.set_attribute("trtnode.request_id", request_id)
        execution = durations.execution
        if execution is not None and execution.ended_ns:
            self.add_phase("queue", execution.began_ns - durations.queue, execution.began_ns)
            self._add_execution(execution)
        self._span.end()

    def _add_execution(self, execution: Execution) -> None:
        name = "batch" if execution.rows else "run"
        rows = {"trtnode.rows": execution.rows} if execution.rows else {}
        whole = self._add(self._span, name, execution.began_ns, execution.ended_ns, rows)
        for stage in execution.stages:
            kind = {"trtnode.stage": "engine" if stage.is_engine else "native"}
            self._add(whole, stage.name, stage.began_ns, stage.ended_ns, kind)

    def _add(self, parent: Span, name: str, began_ns: int, ended_ns: int, facts: Attributes) -> Span:
        context, start_time = set_span_in_context(parent), began_ns + self._clock_ns
        span = self._tracer.start_span(name, context, attributes=facts, start_time=start_time)
        span.end(ended_ns + self._clock_ns)
        return span
