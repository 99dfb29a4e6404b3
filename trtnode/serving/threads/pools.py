"""The thread pools that answer requests in one process. Both ports share them."""

from __future__ import annotations

from trtnode.serving.threads.cpu_affinity import PortCores
from trtnode.serving.threads.request_pool import RequestPool, inference_threads

CONTROL_THREADS = 4
BROADCAST_THREADS = 4
LOADING_THREADS = 4
"""One for each load that may run at a time."""


class ThreadPools:
    """The pools of one process.

    Attributes:
        inference: Runs models. It is bounded on its own, so that no flood of requests delays a probe.
        control: Answers all that takes a moment. It never waits, so that a probe is answered while all else is busy.
        loading: Loads models and explains them. That takes minutes, and starts threads of engines that need all cores.
        broadcast: Waits for other processes of the server, which takes seconds where one of them hangs.
        unpacking: Reads compressed requests of gRPC, one at a time: a few kB may stand for all that one may have.
    """

    def __init__(self, instances: int, max_requests: int, cores: PortCores) -> None:
        """Start no thread yet.

        Args:
            instances: Of all models; see ``inference_threads``.
            max_requests: How many inference requests may be in flight.
            cores: Where the ports' threads run.
        """
        self.inference = RequestPool(inference_threads(instances), max_requests, cores.settle)
        self.control = RequestPool(CONTROL_THREADS, settle=cores.settle)
        self.loading = RequestPool(LOADING_THREADS, settle=cores.leave)
        self.broadcast = RequestPool(BROADCAST_THREADS, settle=cores.settle)
        self.unpacking = RequestPool(1, settle=cores.leave)

    def close(self) -> None:
        """Let the threads end, once the ports are closed."""
        for pool in (self.inference, self.control, self.loading, self.broadcast, self.unpacking):
            pool.close()
