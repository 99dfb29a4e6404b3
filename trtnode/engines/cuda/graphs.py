"""Captures an engine's work on a stream as a CUDA graph, which one call launches.

pycuda has no graphs, so this needs the optional package ``cuda-bindings``. A graph holds addresses, shapes and scratch
memory of its capture, so code that changes one of them drops the graph. The first failure ends capture for good, and
the engine is enqueued as before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from trtnode.engines.cuda.streams import ExecutionStream

try:
    from cuda.bindings import driver as cuda_bindings
except (ImportError, OSError):
    cuda_bindings = None

logger = logging.getLogger(__name__)

Enqueue = Callable[[int], bool]
"""Puts an execution on the stream with this handle, and returns whether that succeeded."""


class GraphCapture:
    """Captures graphs of one engine on one stream, until a capture fails.

    Attributes:
        driver: The module ``cuda.bindings.driver``.
        works: True until something fails.
    """

    def __init__(self, stream: ExecutionStream, *, wanted: bool) -> None:
        self.stream = stream
        self.driver: Any = cuda_bindings
        self.works = wanted and cuda_bindings is not None
        self._captured: CapturedGraph | None = None

    def wrap(self, enqueue: Enqueue, is_ready: Callable[[], bool] = lambda: True) -> Enqueue:
        """Return a call that captures a graph the second time; ``enqueue`` itself where capture doesn't work.

        Args:
            enqueue: The execution.
            is_ready: Returns whether the execution can be captured yet.
        """
        if not self.works:
            return enqueue
        self._captured = CapturedGraph(self, enqueue, is_ready)
        return self._captured

    def drop(self) -> None:
        """Free the graph. The stream must be idle."""
        captured, self._captured = self._captured, None
        if captured is not None:
            captured.free()

    def give_up(self, reason: object) -> None:
        """Capture no more graphs."""
        self.works = False
        logger.info("This engine runs without a CUDA graph: %s", reason)


class CapturedGraph:
    """One execution: enqueued the first time, captured once it is ready, and launched as a graph from then on.

    TensorRT needs one plain execution before a capture, to prepare what it prepares lazily.
    """

    def __init__(self, capture: GraphCapture, enqueue: Enqueue, is_ready: Callable[[], bool]) -> None:
        self._capture = capture
        self._is_ready = is_ready
        self._driver = capture.driver
        self._enqueue = enqueue
        self._ran = False
        self._graph: Any = None
        self._executable: Any = None

    def __call__(self, handle: int) -> bool:
        """Put the execution on the stream."""
        if self._executable is not None:
            return _succeeds(self._driver.cuGraphLaunch(self._executable, handle))
        if not self._ran or not self._capture.works or not self._is_ready():
            self._ran = True
            return self._enqueue(handle)
        self._capture.stream.cuda_stream.synchronize()
        if self._capture_graph(handle):
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

    def _capture_graph(self, handle: int) -> bool:
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        if not _succeeds(begun := self._driver.cuStreamBeginCapture(handle, mode)):
            self._capture.give_up(begun[0])
            return False
        try:
            enqueued = self._enqueue(handle)
        finally:  # a failed capture must be ended too, else the stream is lost
            ended, self._graph = self._driver.cuStreamEndCapture(handle)
        if not enqueued or int(ended):
            self._graph = self._graph if not int(ended) else None
            self._capture.give_up(ended if int(ended) else "the engine can't be captured")
            return False
        made, executable = self._driver.cuGraphInstantiate(self._graph, 0)
        if int(made):
            self._capture.give_up(made)
            return False
        self._executable = executable
        return True


def _succeeds(result: tuple[Any, ...]) -> bool:
    """Return whether a call of the driver has succeeded, which it tells by 0."""
    return not int(result[0])
