"""One inference request, from its arrival to its answer."""

from __future__ import annotations

import abc
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trtnode.engines.errors import InvalidInputError
from trtnode.serving.batching.queued_request import Result
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.errors import CancelledRequestError, InvalidRequestError
from trtnode.serving.models.servable import Servable
from trtnode.serving.protocol.parameters import NO_SEQUENCE, SequenceMark
from trtnode.serving.protocol.request_cache import ParsedRequest, RequestCache
from trtnode.serving.protocol.shared_memory import RegionTable, SharedMemory
from trtnode.serving.protocol.wire_signature import WireSignature
from trtnode.serving.sequences.table import Turn
from trtnode.serving.service.call import Call
from trtnode.serving.service.status import failure_reason
from trtnode.serving.telemetry import logs
from trtnode.serving.telemetry.request_stats import Durations
from trtnode.serving.text.text_model import count_tokens
from trtnode.serving.threads.request_pool import RequestPool

if TYPE_CHECKING:
    from trtnode.serving.telemetry.tracing import RequestTrace, Tracing


class Inference(abc.ABC):
    """A request that reads itself and makes its response, as its transport has them; its call sends that or an error.

    ``InferenceService.accept`` has it answered: once, from whatever thread ends it. Lines that are logged meanwhile
    name it.

    Attributes:
        call: Its client, until it is answered.
        model_name: As the client names it.
        model_version: Decimal; empty for the preferred one.
        id: As the client chose it; known at the latest once the request is read.
    """

    __slots__ = (
        "_began_ns", "_busy_ns", "_cache", "_durations", "_pool", "_request", "_servable", "_trace", "_turn",
        "call", "id", "model_name", "model_version",
    )  # fmt: skip

    def __init__(self, call: Call, model_name: str, model_version: str, identity: str = "") -> None:
        self.call = call
        self.model_name = model_name
        self.model_version = model_version
        self.id = identity
        self._began_ns = time.perf_counter_ns()
        self._trace: RequestTrace | None = None
        self._durations: Durations
        self._request: ParsedRequest

    is_parsed = True
    """False if ``sequence_mark`` reads the request, which takes longer than a moment."""

    def sequence_mark(self, signature: Callable[[], WireSignature]) -> SequenceMark:  # noqa: ARG002  (REST needs it)
        """Take what the request says of its sequence out of it, before ``read``.

        Args:
            signature: Returns that of the model.

        Raises:
            ServingError: The request is at fault.
        """
        return NO_SEQUENCE

    @abc.abstractmethod
    def read(self, cache: RequestCache, memory: SharedMemory) -> ParsedRequest:
        """Return the request as arrays that fit the model.

        Args:
            cache: Of the model.
            memory: The regions of the request's caller.

        Raises:
            ServingError: The request is at fault.
        """

    @abc.abstractmethod
    def write(self, cache: RequestCache, request: ParsedRequest, arrays: Sequence[np.ndarray]) -> Any:
        """Return the response.

        Args:
            cache: Of the model.
            request: What ``read`` returned.
            arrays: Of each output that the request asks for.

        Raises:
            InvalidOutputError: An array isn't of its tensor's type.
            ServingError: An array can't be written where the client wants it.
        """

    def refuse(self, error: BaseException) -> None:
        """Answer with an error before any model has the request."""
        before = logs.CURRENT_REQUEST.set(self)
        try:
            self._answer(error)
        finally:
            logs.CURRENT_REQUEST.reset(before)

    def start(
        self,
        servable: Servable,
        cache: RequestCache,
        pool: RequestPool,
        memory: RegionTable,
        tracing: Tracing | None,
        turn: Turn | None = None,
    ) -> None:
        """Have a model answer: in this thread if that takes a moment, else in one of the pool.

        Args:
            servable: The model, which this request, or its sequence, has entered.
            cache: The model's.
            pool: Counts the request.
            memory: The regions that clients have registered.
            tracing: Of the server; None where nothing is traced.
            turn: In its sequence, which ends whatever happens; None for a request of no sequence.
        """
        self._turn = turn
        self._servable = servable
        self._cache = cache
        self._pool = pool
        pool.enter()
        try:
            if servable.runs_inline(self.call.size):
                self._run(memory, tracing)
            else:
                self.call.watch()
                pool.run(functools.partial(self._run, memory, tracing))
        except BaseException as error:
            self._fail(error)

    def _run(self, memory: RegionTable, tracing: Tracing | None) -> None:
        """Read the request, and have the model run."""
        before = logs.CURRENT_REQUEST.set(self)
        servable, call = self._servable, self.call
        trace = self._trace = tracing.begin(call.metadata) if tracing is not None else None
        began_ns = self._began_ns = time.perf_counter_ns()
        durations = self._durations = Durations(traced=trace is not None)
        self._busy_ns = time.thread_time_ns() if servable.inline.is_doubtful else 0
        try:
            if call.has_left:
                raise CancelledRequestError
            request = self._request = self.read(self._cache, memory.of(call.grant.memory_owner))
            loaded = servable.loaded
            feeds = loaded.decode(request.feeds)
            if loaded.text is not None:
                servable.counts.add_tokens(count_tokens(feeds))
            read_ns = time.perf_counter_ns()
            durations.compute_input = read_ns - began_ns
            if trace is not None:
                trace.add_phase("read", began_ns, read_ns)
            options = RequestOptions(self._pool, request.priority, request.timeout_us, call.add_callback)
            if servable.interim:
                servable.counts.add_fallback("building")
            loaded.submit(feeds, request.outputs, options, durations, self._end, self._turn)
        except BaseException as error:
            self._fail(error)
        finally:
            logs.CURRENT_REQUEST.reset(before)

    def _end(self, outcome: Result) -> None:
        """Write the response."""
        before = logs.CURRENT_REQUEST.set(self)
        try:
            if isinstance(outcome, BaseException):
                self._fail(outcome)
                return
            try:
                response = self._write(outcome)
            except BaseException as error:
                self._fail(error)
            else:
                self._leave(None, response)
        finally:
            logs.CURRENT_REQUEST.reset(before)

    def _write(self, results: Mapping[str, np.ndarray]) -> Any:
        ran_ns = time.perf_counter_ns()
        servable, durations, request = self._servable, self._durations, self._request
        response = self.write(self._cache, request, [results[one.name] for one in request.outputs])
        ended_ns = durations.ended_ns = time.perf_counter_ns()
        durations.compute_output, durations.total = ended_ns - ran_ns, ended_ns - self._began_ns
        servable.counts.add_success(durations)
        size = self.call.size
        if size and durations.alone and not durations.waited:
            busy_ns = time.thread_time_ns() - self._busy_ns if self._busy_ns else 0
            servable.inline.note(size, durations.total, busy_ns)
        if self._trace is not None:
            self._trace.add_phase("write", ran_ns, ended_ns)
        return response

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, InvalidInputError):
            cause, error = error, InvalidRequestError(f"model {self._servable.name!r}: {error}")
            error.__cause__ = cause
        spent_ns = time.perf_counter_ns() - self._began_ns
        self._servable.counts.add_failure(failure_reason(error), spent_ns, detail=str(error))
        if self._trace is not None:
            self._trace.fail(error)
        self._leave(error)

    def _leave(self, error: BaseException | None, response: Any = None) -> None:
        servable, turn = self._servable, self._turn
        go_on = None if turn is None else turn.table.end(turn)
        if turn is None:
            servable.leave(self)
        if self._trace is not None:
            facts = servable.trace_facts()
            named = {} if turn is None else {"trtnode.sequence": str(turn.mark.identity)}
            self._trace.end(self.id, {**facts, **named}, self._durations)
        try:
            self._answer(error, response)
        finally:
            if go_on is not None:
                go_on()
            self._pool.leave()

    def _answer(self, error: BaseException | None, response: Any = None) -> None:
        """Send the response, or the error."""
        call, started_s = self.call, self._began_ns / 1e9
        if error is None:
            try:
                logs.log_answer(call.rpc, call, started_s)
                call.reply(response)
            except Exception as unexpected:
                error = unexpected
        if error is not None:
            call.fail_with(error, call.rpc, started_s)
            _forget_frames(error)
        del self.call  # it leads to what waits for its client to leave, and that leads here


def _forget_frames(error: BaseException | None) -> None:
    """Let an error's frames go: they hold it and its request until garbage is collected."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
