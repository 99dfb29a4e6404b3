"""The runtime cache of TensorRT for RTX: kernels that were compiled for the GPU on which they run."""

from __future__ import annotations

import json
from typing import Any

from simulated_tensorrt.simulation import Bound
from simulated_tensorrt.values import IHostMemory

MAGIC = b"simulated runtime cache\n"


class IRuntimeCache(Bound):
    """Names of kernels, with the release and GPU."""

    def __init__(self) -> None:
        self._kernels: set[str] = set()

    def serialize(self) -> IHostMemory:
        facts = {"machine": self._sim.machine, "kernels": sorted(self._kernels)}
        return IHostMemory(MAGIC + json.dumps(facts).encode())

    def deserialize(self, blob: Any) -> bool:
        data = bytes(memoryview(blob))
        if not self._sim.gpu.stack or not data.startswith(MAGIC):
            return False
        facts = json.loads(data.removeprefix(MAGIC))
        if facts["machine"] != self._sim.machine:
            return False
        self._kernels |= set(facts["kernels"])
        return True

    def reset(self) -> bool:
        self._kernels.clear()
        return True


class IRuntimeConfig(Bound):
    def __init__(self) -> None:
        self._strategy = self._trt.ExecutionContextAllocationStrategy.STATIC
        self._cache: IRuntimeCache | None = None

    def set_execution_context_allocation_strategy(self, strategy: Any) -> None:
        self._strategy = strategy

    def get_execution_context_allocation_strategy(self) -> Any:
        return self._strategy

    def create_runtime_cache(self) -> IRuntimeCache:
        cache: IRuntimeCache = self._trt.IRuntimeCache()
        return cache

    def set_runtime_cache(self, cache: IRuntimeCache | None = None) -> bool:
        self._cache = cache
        return True

    def get_runtime_cache(self) -> IRuntimeCache | None:
        return self._cache

    def _compile(self, kernels: list[str]) -> None:
        """Compile the kernels that the cache lacks."""
        known = self._cache._kernels if self._cache else set()
        missing = set(kernels) - known
        self._sim.compiled_kernels += len(missing)
        known |= missing
