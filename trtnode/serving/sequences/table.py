"""The sequences of one model, in all its versions: begun, used in turn, and ended."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np

from trtnode.engines.inputs.sequences import State
from trtnode.engines.process_memory import give_back_free_pages
from trtnode.serving.errors import SequenceError, SequencesFullError
from trtnode.serving.protocol.parameters import SequenceMark
from trtnode.serving.schema.sequences import SequencesConfig
from trtnode.serving.telemetry.request_stats import ModelCounts, SequenceEnd
from trtnode.serving.threads.request_pool import RequestPool

REMEMBERED = 1024
"""Sequences that the server has ended, of which their next request learns why."""

Work = Callable[[], None]

LEAST_WAIT_S = 0.05
"""Between two looks at what is due."""

REASONS = {
    SequenceEnd.END: "is not begun",
    SequenceEnd.IDLE: "had no request for longer than sequences.idle_s",
    SequenceEnd.EVICTED: "made room for others, as sequences.max and sequences.memory_mb say",
    SequenceEnd.REPLACED: "was one of a version that has been replaced for longer than sequences.idle_s",
    SequenceEnd.UNLOADED: "ended when its model was unloaded",
}


class Holder(Protocol):
    """The version of a model that runs a sequence."""

    counts: ModelCounts

    def enter(self, user: object) -> bool:
        """Keep the version until ``leave``; return False if it is retired already."""
        ...

    def leave(self, user: object) -> None:
        """Let go of the version."""
        ...


@dataclasses.dataclass(slots=True, eq=False)
class Sequence:
    """Requests of one caller to one version of a model. Every attribute changes under the lock of its table.

    Attributes:
        key: Of the table.
        holder: What runs it.
        state: Left by the last request; None for that of a first one.
        size: Bytes of the state.
        turns: Of requests that haven't ended yet, in their order.
        unanswered: Requests that have ended, and whose answers aren't sent yet.
        used_s: When it was last used, by ``time.monotonic``.
        until_s: When it ends though it is used; None for never.
        gone: Why it has ended before its requests were answered; None while it lives.
    """

    key: Hashable
    holder: Holder
    state: State | None = None
    size: int = 0
    turns: collections.deque[Turn] = dataclasses.field(default_factory=collections.deque)
    unanswered: int = 0
    used_s: float = dataclasses.field(default_factory=time.monotonic)
    until_s: float | None = None
    gone: SequenceEnd | None = None

    @property
    def takes_no_more(self) -> bool:
        """True if it may only be begun anew: its last request ends it, or its version is replaced for too long."""
        late = self.until_s is not None and time.monotonic() >= self.until_s
        return late or bool(self.turns and self.turns[-1].mark.end)


@dataclasses.dataclass(slots=True, eq=False)
class Turn:
    """A request's place in its sequence.

    Attributes:
        table: Has its sequence.
        sequence: Its sequence.
        mark: What the request says of it.
        work: Runs it, if it was read before it came first.
        over: Whether its request has ended.
    """

    table: SequenceTable
    sequence: Sequence
    mark: SequenceMark
    work: Work | None = None
    over: bool = False


def _size_of(tensor: Any) -> int:
    return tensor.nbytes if isinstance(tensor, np.ndarray) else int(tensor.tensor_size_in_bytes())


class SequenceTable:
    """Keeps the sequences of a model. Thread-safe.

    Attributes:
        config: Their bounds.
    """

    def __init__(self, model: str, config: SequencesConfig) -> None:
        self.config = config
        self._model = model
        self._lock = threading.RLock()
        self._live: dict[Hashable, Sequence] = {}
        self._idle: dict[Hashable, Sequence] = {}  # the one that is idle for longest first
        self._bytes = 0
        self._ended: collections.OrderedDict[Hashable, SequenceEnd] = collections.OrderedDict()
        self._pool: RequestPool | None = None
        self._is_watched = False
        self._until_s: float | None = None  # when the next sequence outlives its version

    def take(self, mark: SequenceMark, owner: Hashable, find: Callable[[], Holder], pool: RequestPool) -> Turn:
        """Return a request's turn in its sequence, which begins if the request says so.

        Args:
            mark: What the request says.
            owner: The caller, and the version that the request names: others have sequences of their own.
            find: Returns the version that a new sequence is to keep.
            pool: Its threads work for requests that have waited.

        Raises:
            SequenceError: The sequence was not begun, or has ended.
            SequencesFullError: There are as many as may be, and all are in use.
        """
        key = (owner, mark.identity)
        with self._lock:
            self._pool = pool
            self._end_due()
            sequence = self._live.get(key)
            if mark.start and (sequence is None or sequence.until_s is not None):
                sequence = self._begin(key, find)
            elif sequence is None or (not mark.start and sequence.takes_no_more):
                raise SequenceError(self._model, mark.identity, REASONS[self._ended.get(key, SequenceEnd.END)])
            self._idle.pop(key, None)
            turn = Turn(self, sequence, mark)
            sequence.turns.append(turn)
            return turn

    def submit(self, turn: Turn, work: Work) -> None:
        """Have a request work when its turn has come: now, or in a thread of the pool."""
        sequence = turn.sequence
        with self._lock:
            if sequence.unanswered or sequence.turns[0] is not turn:
                turn.work = work
                return
        self._run(turn, work)

    def state(self, turn: Turn) -> State | None:
        """Return the state that a request begins with; None for that of a first one.

        Raises:
            SequenceError: The sequence has ended since the request came.
        """
        sequence = turn.sequence
        if sequence.gone is not None:
            raise SequenceError(self._model, turn.mark.identity, REASONS[sequence.gone])
        return sequence.state

    def keep(self, turn: Turn, state: State) -> None:
        """Keep what a request leaves for the next one.

        Raises:
            SequencesFullError: It takes more memory than there is, though no other sequence is idle.
        """
        sequence, size = turn.sequence, sum(map(_size_of, state.values()))
        with self._lock:
            most = self.config.memory_mb << 20
            while self._bytes - sequence.size + size > most and self._idle:
                self._end(next(iter(self._idle.values())), SequenceEnd.EVICTED)
            if self._bytes - sequence.size + size > most:
                sequence.holder.counts.sequences.refused += 1
                raise SequencesFullError(f"their state takes more than {self.config.memory_mb} MiB", "memory_mb")
            if sequence.gone is None:
                self._set(sequence, state, size)

    def end(self, turn: Turn) -> Work:
        """Note that a request has ended; return what lets the next one of its sequence run, once it is answered."""
        if turn.over:
            return _nothing
        turn.over = True
        with self._lock:
            sequence = turn.sequence
            sequence.turns.remove(turn)
            sequence.unanswered += 1
            sequence.used_s = time.monotonic()
            if not sequence.turns:
                self._rest(sequence, ended=turn.mark.end)
        return functools.partial(self._go_on, sequence)

    def _rest(self, sequence: Sequence, *, ended: bool) -> None:
        if self._live.get(sequence.key) is not sequence:
            self._let_go(sequence)
        elif ended:
            self._end(sequence, SequenceEnd.END)
        else:
            self._idle[sequence.key] = sequence
            self._watch()

    def _go_on(self, sequence: Sequence) -> None:
        with self._lock:
            sequence.unanswered -= 1
            first = sequence.turns[0] if sequence.turns and not sequence.unanswered else None
            if first is None or first.work is None or self._pool is None:
                return
            work, first.work = first.work, None  # it leads to what has the turn
        self._pool.run(functools.partial(self._run, first, work))

    def retire(self, holder: Holder) -> None:
        """Let the sequences of a version that is replaced end by themselves, or after some time."""
        with self._lock:
            for sequence in self._live.values():
                if sequence.holder is holder:
                    sequence.until_s = time.monotonic() + self.config.idle_s
                    self._until_s = self._until_s or sequence.until_s

    def end_all(self) -> None:
        """End all sequences: their model is unloaded. Requests that run are answered."""
        with self._lock:
            for sequence in list(self._live.values()):
                self._end(sequence, SequenceEnd.UNLOADED)

    def look(self) -> None:
        """End what is due; the pool calls it."""
        with self._lock:
            self._is_watched = False
            if self._end_due():
                give_back_free_pages()
            self._watch()

    def _begin(self, key: Hashable, find: Callable[[], Holder]) -> Sequence:
        sequence = Sequence(key, find())
        before = self._live.get(key)
        if before is not None:
            self._end(before, SequenceEnd.END)
        if len(self._live) >= self.config.max:
            if not self._idle:
                sequence.holder.counts.sequences.refused += 1
                raise SequencesFullError(f"{self.config.max} sequences are in use", "max")
            self._end(next(iter(self._idle.values())), SequenceEnd.EVICTED)
        while not sequence.holder.enter(sequence):  # another version has just taken its place
            sequence.holder = find()
        self._live[key] = sequence
        self._ended.pop(key, None)
        sequence.holder.counts.sequences.open += 1
        return sequence

    def _run(self, turn: Turn, work: Work) -> None:
        """Have the first request of a sequence work."""
        if turn.mark.start:
            with self._lock:
                turn.sequence.holder.counts.sequences.begun += 1
                self._set(turn.sequence, None, 0)
        work()

    def _set(self, sequence: Sequence, state: State | None, size: int) -> None:
        counts = sequence.holder.counts.sequences
        counts.bytes += size - sequence.size
        self._bytes += size - sequence.size
        sequence.state, sequence.size = state, size

    def _end(self, sequence: Sequence, reason: SequenceEnd) -> None:
        """Forget a sequence. Unless it has ended as the client says, requests that wait in it fail."""
        del self._live[sequence.key]
        self._idle.pop(sequence.key, None)
        sequence.holder.counts.sequences.open -= 1
        sequence.holder.counts.sequences.ended[reason.value] += 1
        if reason is not SequenceEnd.END:
            self._ended[sequence.key] = sequence.gone = reason
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)
        if not sequence.turns:
            self._let_go(sequence)

    def _let_go(self, sequence: Sequence) -> None:
        self._set(sequence, None, 0)
        sequence.holder.leave(sequence)

    def _end_due(self) -> bool:
        """End what was idle for too long, or outlived its version; return whether there was any."""
        now_s, before = time.monotonic(), len(self._idle)
        while self._idle and now_s >= (first := next(iter(self._idle.values()))).used_s + self.config.idle_s:
            self._end(first, SequenceEnd.IDLE)
        if self._until_s is not None and now_s >= self._until_s:
            for sequence in [one for one in self._idle.values() if now_s >= (one.until_s or math.inf)]:
                self._end(sequence, SequenceEnd.REPLACED)
            self._until_s = min((one.until_s for one in self._live.values() if one.until_s), default=None)
        return len(self._idle) < before

    def _watch(self) -> None:
        """Have somebody look when the next sequence may be due."""
        if self._is_watched or self._pool is None or not self._live:
            return
        self._is_watched = True
        used_s = next((one.used_s for one in self._idle.values()), time.monotonic())
        wait_s = min(used_s + self.config.idle_s, self._until_s or math.inf) - time.monotonic()
        self._pool.run_at(time.perf_counter_ns() + int(max(wait_s, LEAST_WAIT_S) * 1e9), self.look)


def _nothing() -> None:
    """No request waits."""
