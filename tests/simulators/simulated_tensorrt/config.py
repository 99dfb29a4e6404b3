"""Settings of a build: limits, flags, profiles and the timing cache."""

from __future__ import annotations

import json
from typing import Any

import onnx

from simulated_tensorrt.real_parser import real_builder
from simulated_tensorrt.simulation import Bound
from simulated_tensorrt.values import Dims, IHostMemory, ILogger, Speaks
from trtnode.engines.tensorrt.library import TENSORRT_RTX

CACHE_MAGIC = b"simulated timing cache\n"


class IOptimizationProfile(Bound):
    """Least, best and most shapes of inputs; of inputs on the host, values. The real library's profile judges them."""

    def __init__(self) -> None:
        self._real = real_builder().create_optimization_profile()
        self._shapes: dict[str, list[list[int]]] = {}
        self._values: dict[str, list[list[int]]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:  # noqa: A002  (the library's names)
        self._real.set_shape(input, min, opt, max)
        self._shapes[input] = [list(Dims(shape)) for shape in (min, opt, max)]

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:  # noqa: A002
        self._real.set_shape_input(input, min, opt, max)
        self._values[input] = [list(map(int, values)) for values in (min, opt, max)]


class ITimingCache(Bound):
    """Layers that were timed, with the release and GPU. It has no times: nothing here is fast or slow."""

    def __init__(self, machine: str, layers: set[str]) -> None:
        self._machine = machine
        self._layers = layers

    def serialize(self) -> IHostMemory:
        facts = {"machine": self._machine, "layers": sorted(self._layers)}
        return IHostMemory(CACHE_MAGIC + json.dumps(facts).encode())

    def reset(self) -> bool:
        self._layers.clear()
        return True


class IBuilderConfig(Speaks):
    builder_optimization_level = 3
    progress_monitor: Any = None
    flags: int
    hardware_compatibility_level: Any

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
        self.flags = 1 << int(self._trt.BuilderFlag.TF32)
        self.hardware_compatibility_level = self._trt.HardwareCompatibilityLevel.NONE
        self._real = real_builder().create_builder_config()
        self._limits: dict[str, int] = {}
        self._profiles: list[IOptimizationProfile] = []
        self._cache: ITimingCache | None = None
        self._targets: list[Any] = []

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        self._limits[pool.name] = int(pool_size)

    def set_flag(self, flag: Any) -> None:
        self.flags |= 1 << int(flag)

    def get_flag(self, flag: Any) -> bool:
        return bool(self.flags >> int(flag) & 1)

    @property
    def num_compute_capabilities(self) -> int:
        return len(self._targets)

    @num_compute_capabilities.setter
    def num_compute_capabilities(self, count: int) -> None:
        self._targets = [self._trt.ComputeCapability.NONE] * count

    def set_compute_capability(self, compute_capability: Any, index: int) -> bool:
        self._targets[index] = compute_capability
        return True

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._profiles)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        if self._real.add_optimization_profile(profile._real) < 0:
            return -1
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: Any) -> ITimingCache | None:
        data = bytes(memoryview(serialized_timing_cache))
        facts: dict[str, Any] = {"machine": self._sim.machine, "layers": []}
        if data:
            if not data.startswith(CACHE_MAGIC):
                self._error("Timing cache header is invalid.")
                return None
            facts = json.loads(data.removeprefix(CACHE_MAGIC))
        cache: ITimingCache = self._trt.ITimingCache(facts["machine"], set(facts["layers"]))
        return cache

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        if cache._machine != self._sim.machine and not ignore_mismatch:
            self._warn("The timing cache was made by another release or on another device.")
            return False
        self._cache = cache
        return True

    def _target(self, name: str) -> str:
        return self._sim.target if name == "current" else name

    def _measure(self, node: onnx.NodeProto) -> bool:
        """Time a layer.

        Returns:
            False where the cache knows its time.
        """
        key = f"{node.op_type} {[str(a) for a in node.attribute]}"
        if self._cache is None or self.get_flag(self._trt.BuilderFlag.DISABLE_TIMING_CACHE):
            return True
        known = key in self._cache._layers
        self._cache._layers.add(key)
        return not known

    def _flag_names(self) -> list[str]:
        """The flags that are set."""
        return [flag.name for flag in self._trt.BuilderFlag if self.get_flag(flag)]

    def _settings(self) -> dict[str, Any]:
        """Return the other settings, for the plan."""
        return {
            "level": self.builder_optimization_level,
            "limits": self._limits,
            "hardware_compatibility_level": self.hardware_compatibility_level.name,
            "targets": [self._target(one.name.lower()) for one in self._targets] or list(TENSORRT_RTX.portable),
        }

    def _profiles_told(self) -> list[dict[str, Any]]:
        """Return shapes and values by input, once a profile."""
        return [{"shapes": profile._shapes, "values": profile._values} for profile in self._profiles]
