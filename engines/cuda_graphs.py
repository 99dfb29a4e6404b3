"""Records what an engine puts on a stream as a CUDA graph, and replays it with one call.

pycuda has no graphs, so this needs the optional package ``cuda-bindings``. A graph holds addresses, shapes and scratch
memory as they were: whoever changes one of them drops it. Whatever fails on the way ends the recording for good, and
the engine is enqueued as before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from engines.lanes import Lane

try:
    from cuda.bindings import driver as cuda_bindings
except (ImportError, OSError):
    cuda_bindings = None

logger = logging.getLogger(__name__)

Enqueue = Callable[[int], bool]
"""Puts an execution on the stream with this handle; False where that fails."""


class Recorder:
    """Makes replays for one engine on one lane, as long as recording works.

    Attributes:
        driver: The module ``cuda.bindings.driver``.
        works: Whether nothing has failed so far.
    """

    def __init__(self, lane: Lane, *, wanted: bool) -> None:
        self.lane = lane
        self.driver: Any = cuda_bindings
        self.works = wanted and cuda_bindings is not None
        self._replay: Replay | None = None

    def wrap(self, enqueue: Enqueue) -> Enqueue:
        """Give what records a graph on its second call, if there is none at present."""
        if not self.works:
            return enqueue
        self._replay = Replay(self, enqueue)
        return self._replay

    def drop(self) -> None:
        """Free the graph. The lane must be idle."""
        replay, self._replay = self._replay, None
        if replay is not None:
            replay.free()

    def give_up(self, reason: object) -> None:
        """Record no more."""
        self.works = False
        logger.info("This engine runs without a CUDA graph: %s", reason)


class Replay:
    """One execution: enqueued the first time, recorded the second, and replayed from then on.

    TensorRT wants one plain execution before it is recorded, so that whatever it prepares lazily is done.
    """

    def __init__(self, recorder: Recorder, enqueue: Enqueue) -> None:
        self._recorder = recorder
        self._driver = recorder.driver
        self._enqueue = enqueue
        self._ran = False
        self._graph: Any = None
        self._executable: Any = None

    def __call__(self, handle: int) -> bool:
        """Put the execution on the stream."""
        if self._executable is not None:
            return _succeeds(self._driver.cuGraphLaunch(self._executable, handle))
        if not self._ran or not self._recorder.works:
            self._ran = True
            return self._enqueue(handle)
        self._recorder.lane.stream.synchronize()
        if self._record(handle):
            return _succeeds(self._driver.cuGraphLaunch(self._executable, handle))
        self.free()
        return self._enqueue(handle)

    def free(self) -> None:
        """Destroy the graph."""
        graph, executable, self._graph, self._executable = self._graph, self._executable, None, None
        if executable is not None:
            self._driver.cuGraphExecDestroy(executable)
        if graph is not None:
            self._driver.cuGraphDestroy(graph)

    def _record(self, handle: int) -> bool:
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        if not _succeeds(begun := self._driver.cuStreamBeginCapture(handle, mode)):
            self._recorder.give_up(begun[0])
            return False
        enqueued = self._enqueue(handle)
        ended, self._graph = self._driver.cuStreamEndCapture(handle)  # also what failed must be ended
        if not enqueued or int(ended):
            self._graph = self._graph if not int(ended) else None
            self._recorder.give_up(ended if int(ended) else "TensorRT can't be recorded here")
            return False
        made, executable = self._driver.cuGraphInstantiate(self._graph, 0)
        if int(made):
            self._recorder.give_up(made)
            return False
        self._executable = executable
        return True


def _succeeds(result: tuple[Any, ...]) -> bool:
    """Whether a call of the driver has given 0 for success."""
    return not int(result[0])
