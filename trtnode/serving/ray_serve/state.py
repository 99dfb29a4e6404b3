"""The replicas that there are of each model, as Ray's controller counts them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping

from ray import serve
from ray.serve.schema import ApplicationStatusOverview

from trtnode.serving.schema.model import ModelConfig, ScalingConfig

logger = logging.getLogger(__name__)

FRESH_S = 1.0
"""The age at which the counts are asked for anew."""
CONTROLLER_S = 3.0
"""The longest time that the controller may take; then the last counts stand. Replicas answer without it."""


class ClusterState:
    """Tells whether each model has the replicas that it should always have. For one event loop."""

    def __init__(self, app_name: str, models: tuple[ModelConfig, ...]) -> None:
        self._app_name = app_name
        self._least = {model.name: (model.scaling or ScalingConfig()).least for model in models}
        self._required = [model.name for model in models if model.required]
        self._running: Mapping[str, int] = {}
        self._asked_s = -math.inf
        self._asking = asyncio.Lock()

    @property
    def reasons(self) -> list[str]:
        """The required models that lack replicas, one line each, as of the last counts."""
        lacking = [name for name in self._required if self._lacks(name)]
        return [f"model {name!r} has {self._running.get(name, 0)} of {self._least[name]} replicas" for name in lacking]

    async def not_ready(self) -> list[str]:
        """Return the required models that lack replicas, one line each."""
        await self.refresh()
        return self.reasons

    async def lacks(self, name: str) -> bool:
        """Return whether a model has fewer replicas than it should always have."""
        await self.refresh()
        return self._lacks(name)

    async def refresh(self) -> None:
        """Ask the controller, unless that was just done."""
        async with self._asking:
            if time.monotonic() - self._asked_s < FRESH_S:
                return
            try:
                asked = asyncio.to_thread(running_replicas, self._app_name)
                self._running = await asyncio.wait_for(asked, CONTROLLER_S)
            except Exception as error:  # the controller restarts, and replicas answer meanwhile
                logger.warning("Ray's controller doesn't tell how many replicas there are: %s", error)
            self._asked_s = time.monotonic()

    def _lacks(self, name: str) -> bool:
        return self._running.get(name, 0) < self._least[name]


def running_replicas(app_name: str) -> Mapping[str, int]:
    """Return the number of replicas that take requests, by model; none of an application that isn't there."""
    app: ApplicationStatusOverview | None = serve.status().applications.get(app_name)
    deployments = app.deployments if app is not None else {}
    return {name: one.replica_states.get("RUNNING", 0) for name, one in deployments.items()}
