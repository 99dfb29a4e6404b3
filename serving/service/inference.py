"""One inference request, from the model that it found to its response."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engines import InvalidInputError
from serving.batching.queued_request import Outcome
from serving.batching.request_options import RequestOptions
from serving.errors import InvalidRequestError
from serving.models.servable import Servable
from serving.protocol.request_cache import ParsedRequest, RequestCache
from serving.protocol.shared_memory import SharedMemory
from serving.service.exchange import Exchange
from serving.service.request_context import RequestContext
from serving.service.status import failure_reason
from serving.telemetry.request_stats import Durations, FailureReason
from serving.threads.request_pool import RequestPool

if TYPE_CHECKING:
    from serving.telemetry.tracing import RequestTrace

Done = Callable[[BaseException | None], None]
"""Gets None when the response is written, else the error."""


class Inference:
    """A request that has entered its model, and leaves it whatever happens."""

    __slots__ = (
        "_began_ns", "_busy_ns", "_cache", "_done", "_durations", "_exchange", "_request", "_servable", "_trace",
    )  # fmt: skip

    def __init__(
        self,
        servable: Servable,
        cache: RequestCache,
        exchange: Exchange,
        trace: RequestTrace | None,
        done: Done,
    ) -> None:
        self._servable = servable
        self._cache = cache
        self._exchange = exchange
        self._trace = trace
        self._done = done
        self._durations = Durations(traced=trace is not None)
        self._began_ns = time.perf_counter_ns()
        self._busy_ns = time.thread_time_ns() if exchange.size else 0
        self._request: ParsedRequest

    def begin(self, context: RequestContext, memory: SharedMemory, pool: RequestPool) -> None:
        """Read the request, and have the model run."""
        try:
            request = self._request = self._exchange.read(self._cache, memory)
            feeds = self._servable.decode_images(request.feeds)
            read_ns = time.perf_counter_ns()
            self._durations.compute_input = read_ns - self._began_ns
            if self._trace is not None:
                self._trace.add_phase("read", self._began_ns, read_ns)
            options = RequestOptions(pool, request.priority, request.timeout_us, context.add_callback)
            self._servable.submit(feeds, request.outputs, options, self._durations, self._end)
        except BaseException as error:
            self._fail(error)

    def _end(self, outcome: Outcome) -> None:
        """Write the response."""
        if isinstance(outcome, BaseException):
            self._fail(outcome)
            return
        ran_ns = time.perf_counter_ns()
        durations, counts, request = self._durations, self._servable.counts, self._request
        if durations.variant:
            request = request._replace(variant=durations.variant)
        try:
            self._exchange.write(self._cache, request, [outcome[one.name] for one in request.outputs])
            ended_ns = time.perf_counter_ns()
            durations.compute_output, durations.total = ended_ns - ran_ns, ended_ns - self._began_ns
            durations.ended_ns = ended_ns
            counts.add_success(durations)
        except BaseException as error:
            self._fail(error)
            return
        self._servable.observe(durations.total / 1e6)
        if durations.alone and not durations.waited and self._exchange.size:
            busy_ns = time.thread_time_ns() - self._busy_ns
            self._servable.brevity.note(self._exchange.size, durations.total, busy_ns)
        if self._trace is not None:
            self._trace.add_phase("write", ran_ns, ended_ns)
        self._leave(None)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, InvalidInputError):
            cause, error = error, InvalidRequestError(f"model {self._servable.name!r}: {error}")
            error.__cause__ = cause
        spent_ns = time.perf_counter_ns() - self._began_ns
        reason = failure_reason(error)
        self._servable.counts.add_failure(reason, spent_ns, detail=str(error))
        if reason is FailureReason.REJECTED:
            self._servable.observe(math.inf)
        if self._trace is not None:
            self._trace.fail(error)
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        self._servable.leave(self._exchange)
        if self._trace is not None:
            self._trace.end(self._exchange.id, self._servable.name, self._servable.version, self._durations)
        done = self._done
        del self._done  # it leads to the call, which leads here while the client is watched
        done(error)
