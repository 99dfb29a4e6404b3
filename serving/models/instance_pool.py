"""The instances of one model: how many requests run at the same time where none are joined to batches."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

from serving.batching.concatenation import Feeds
from serving.batching.request_options import RequestOptions
from serving.errors import CancelledRequestError
from serving.executables.interface import Choose
from serving.telemetry.request_stats import Durations, Execution, ModelCounts, RejectionReason

PATIENCE_S = 0.01
"""The time that a request may hold its thread while it waits for an instance, unless others wait longer already."""


class InstancePool:
    """Runs each request of a model by itself, when an instance is free. Thread-safe."""

    def __init__(self, choose: Choose, instances: int, counts: ModelCounts) -> None:
        self._choose = choose
        self._counts = counts
        # One token an instance. A SimpleQueue costs a tenth of a semaphore, whose waiting is written in Python.
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(instances):
            self._tokens.put(None)
        self._long_waits: set[object] = set()
        """One object for each request that has waited longer than ``PATIENCE_S``."""

    def infer(
        self, feeds: Feeds, names: Sequence[str] | None, options: RequestOptions, durations: Durations
    ) -> Mapping[str, np.ndarray]:
        """Run the model once.

        Args:
            feeds: Arrays that fit the model.
            names: The outputs to give; None for all.
            options: Of the request; only its cancellation counts here.
            durations: Gets the time in the queue and of the run.

        Raises:
            CancelledRequestError: The client left while the request waited.
            Exception: What the execution raised.
        """
        arrived_ns = time.perf_counter_ns()
        waits = False
        try:
            self._tokens.get_nowait()
        except queue.Empty:
            waits = True
            self._counts.enter_queue()
            self._wait(options)
        started_ns = time.perf_counter_ns()
        execution = durations.execution = Execution() if durations.traced else None
        try:
            if waits and not options.on_cancel(_ignore):
                self._leave_queue()
            self._counts.begin_execution(leaving=int(waits))
            run, durations.variant = self._choose()
            results = run(feeds, names, execution.stages if execution else None)
        finally:
            self._tokens.put(None)
        ended_ns = time.perf_counter_ns()
        durations.alone = True
        durations.queue = started_ns - arrived_ns
        durations.compute_infer = ended_ns - started_ns
        if execution is not None:
            execution.ended_ns = ended_ns
        return results

    def _wait(self, options: RequestOptions) -> None:
        """Wait for an instance. Where that takes long, the thread makes room for requests to other models."""
        if not self._long_waits:
            with contextlib.suppress(queue.Empty):
                self._tokens.get(timeout=PATIENCE_S)
                return
        mark = object()
        self._long_waits.add(mark)
        with options.waiting:
            self._tokens.get()
        self._long_waits.discard(mark)

    def _leave_queue(self) -> NoReturn:
        self._counts.leave_queue()
        self._counts.add_rejection(RejectionReason.CANCELLED)
        raise CancelledRequestError


def _ignore() -> None:
    """Do nothing for a client that leaves while its request runs."""
