"""The builder: writes a plan of a network."""

from __future__ import annotations

import os
import time
from typing import Any

from simulated_tensorrt.config import IBuilderConfig
from simulated_tensorrt.graphs import scratch_bytes
from simulated_tensorrt.network import INetworkDefinition
from simulated_tensorrt.plan import Plan
from simulated_tensorrt.simulation import swallow
from simulated_tensorrt.values import IHostMemory, ILogger, ShowsLogger

PHASE = "Building Engine"


class BuildStoppedError(Exception):
    """A build that ends without an engine; the text goes to the log."""


class Builder(ShowsLogger):
    """Builds one engine at a time."""

    def __init__(self, logger: ILogger) -> None:
        super().__init__(logger)
        if self._sim.faults.builder_missing:
            self._error("CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        network: INetworkDefinition = self._trt.INetworkDefinition(self, flags)
        return network

    def create_builder_config(self) -> IBuilderConfig:
        config: IBuilderConfig = self._trt.IBuilderConfig(self._logger)
        return config

    def create_optimization_profile(self) -> Any:
        return self._trt.IOptimizationProfile()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> IHostMemory | None:
        try:
            plan = self._build(network, config)
        except BuildStoppedError as error:
            self._error(str(error))
            return None
        self._sim.builds += 1
        return IHostMemory(plan.to_bytes())

    def _build(self, network: INetworkDefinition, config: IBuilderConfig) -> Plan:
        faults = self._sim.faults
        if faults.build_crashes:
            os._exit(139)
        if network._model is None:
            raise BuildStoppedError("Network must have at least one output")
        profiles = config._profiles_told()
        self._work(network, config)
        if faults.build_fails:
            raise BuildStoppedError(faults.build_fails)
        scratch = [scratch_bytes(network._model, shapes) for shapes in _largest(profiles)]
        return Plan(
            version=self._sim.version,
            tensors=network._tensors,
            profiles=profiles,
            scratch=scratch,
            layers=[node.name or node.output[0] for node in network._model.graph.node],
            flags=config._flag_names(),
            settings={**config._settings(), "strongly_typed": network._strongly_typed},
            model=network._model.SerializeToString(),
        )

    def _work(self, network: INetworkDefinition, config: IBuilderConfig) -> None:
        """Time each layer that the timing cache does not know, and report to the monitor, which may stop it."""
        assert network._model is not None
        monitor = getattr(config, "progress_monitor", None)
        nodes = network._model.graph.node
        if monitor is not None:
            swallow(monitor.phase_start, PHASE, None, len(nodes))
        for step, node in enumerate(nodes):
            self._sim.timed_layers += config._measure(node)
            time.sleep(self._sim.faults.build_step_s)
            if monitor is not None and not swallow(monitor.step_complete, PHASE, step):
                raise BuildStoppedError("Engine building has been cancelled by the progress monitor.")
        if monitor is not None:
            swallow(monitor.phase_finish, PHASE)


def _largest(profiles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: shapes[-1] for name, shapes in p["shapes"].items()} for p in profiles] or [{}]
