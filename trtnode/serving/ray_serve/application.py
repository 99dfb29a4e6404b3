"""The Ray Serve application of a servable.yaml: a deployment for each model, and the ingress.

| servable.yaml | Ray Serve |
|---|---|
| models[].scaling: replicas, min, max, target_ongoing_requests, delays | num_replicas, autoscaling_config |
| models[].scaling: cpus, gpus | ray_actor_options |
| models[].instances, batching.max_batch_size | max_ongoing_requests: what keeps a replica busy, twice |
| models[].batching.max_queue_size, else server.limits.max_requests | max_queued_requests, of each ingress |
| server.shutdown_grace_s | graceful_shutdown_timeout_s |
"""

from __future__ import annotations

import logging
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.schema import LoggingConfig

from trtnode.serving.config.load import load_config
from trtnode.serving.errors import InvalidOptionError
from trtnode.serving.ray_serve.ingress import Ingress
from trtnode.serving.ray_serve.replica import ModelReplica
from trtnode.serving.schema.model import ModelConfig, ScalingConfig
from trtnode.serving.schema.server import ServableConfig

INGRESS = "~ingress"
"""The name of its deployment; no model can be called so."""
INGRESS_REQUESTS = 32
"""Requests in an ingress at a time, on average, that the number of ingresses follows."""
LEAST_ONGOING = 8
"""The least number of requests that Ray gives a replica at a time."""
HEALTH_CHECK_S = 2.0
"""The time between two health checks of a replica."""


def app(arguments: Mapping[str, str]) -> serve.Application:
    """Return the application for ``serve run`` and KubeRay.

    Args:
        arguments: ``config``: the path of a servable.yaml, on the node that builds the application.

    Raises:
        ConfigError: The file can't be used.
        InvalidOptionError: There is no ``config``, or something else.
    """
    if set(arguments) != {"config"}:
        raise InvalidOptionError("args", f"should be config alone, the path of a servable.yaml, not {dict(arguments)}")
    return application(load_config(pathlib.Path(arguments["config"]), on_ray=True))


def application(config: ServableConfig, run: str = "") -> serve.Application:
    """Return the application of a configuration.

    Args:
        config: What to serve.
        run: Names who deploys it.
    """
    replicas = {model.name: _deployment(config, model) for model in config.models}
    most = max((model.scaling or ScalingConfig()).most for model in config.models)
    ingress = serve.deployment(Ingress).options(
        name=INGRESS,
        max_ongoing_requests=config.server.limits.max_requests + config.server.limits.streams,
        autoscaling_config={
            "min_replicas": min(2, most),  # where a model survives a node, so does what finds it
            "max_replicas": max(2, most),
            "target_ongoing_requests": INGRESS_REQUESTS,
        },
        ray_actor_options={"num_cpus": 0},
        **_common(config),
    )
    return ingress.bind(config, replicas, run)


def _deployment(config: ServableConfig, model: ModelConfig) -> serve.Application:
    scaling = model.scaling or ScalingConfig()
    number: dict[str, Any] = {"num_replicas": scaling.replicas}
    if scaling.max is not None:
        number = {
            "autoscaling_config": {
                "min_replicas": scaling.least,
                "initial_replicas": scaling.replicas,
                "max_replicas": scaling.max,
                "target_ongoing_requests": scaling.target_ongoing_requests,
                "upscale_delay_s": scaling.upscale_delay_s,
                "downscale_delay_s": scaling.downscale_delay_s,
            }
        }
    deployment = serve.deployment(ModelReplica).options(
        name=model.name,
        max_ongoing_requests=_most_ongoing(model, scaling),
        max_queued_requests=model.batching.max_queue_size if model.batching else config.server.limits.max_requests,
        ray_actor_options={"num_cpus": scaling.cpus, "num_gpus": scaling.gpus},
        **number,
        **_common(config),
    )
    return deployment.bind(_of_replica(config, model, scaling))


def _common(config: ServableConfig) -> dict[str, Any]:
    return {
        "health_check_period_s": HEALTH_CHECK_S,
        "graceful_shutdown_timeout_s": config.server.shutdown_grace_s,
        "logging_config": LoggingConfig(log_level=logging.WARNING, enable_access_log=False),
    }


def _most_ongoing(model: ModelConfig, scaling: ScalingConfig) -> int:
    """Return the requests that a replica has at a time. Those beyond wait where they can still go to another one."""
    batch = model.batching.max_batch_size if model.batching else 1
    return max(LEAST_ONGOING, 2 * model.instances * batch, 2 * math.ceil(scaling.target_ongoing_requests))


def _of_replica(config: ServableConfig, model: ModelConfig, scaling: ScalingConfig) -> ServableConfig:
    """Return the configuration of a replica: one model, no callers but the ingress, and the cores that it gets."""
    threads = model.threads or max(1, math.floor(scaling.cpus))
    server = config.server.model_copy(update={"auth": None})
    return config.model_copy(update={"models": (model.model_copy(update={"threads": threads}),), "server": server})
