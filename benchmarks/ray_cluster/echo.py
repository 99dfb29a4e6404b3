"""An application of Ray's alone, with as many hops: its proxy, an ingress, a replica that returns the message."""

from __future__ import annotations

import logging
from typing import Any

import ray
from ray import serve
from ray.serve.schema import LoggingConfig

ECHO = "echo"
"""The application's name, for the metadata key ``application``."""


class Written:
    """A message that is written already, as Ray takes the responses of RPCs."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def SerializeToString(self) -> bytes:  # noqa: N802  # protobuf's name for it
        """Return its bytes."""
        return self._content


class EchoReplica:
    """Returns messages."""

    async def answer(self, message: bytes) -> bytes:
        """Return the message."""
        return message


class EchoIngress:
    """Hands messages to a replica."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica.options(_by_reference=False)

    async def ModelInfer(self, message: bytes) -> Written:  # noqa: N802  # the name of the RPC
        """Return the message."""
        return Written(await self._replica.answer.remote(message))


def deploy_echo(address: str) -> None:
    """Add it to a cluster on which Ray Serve runs already."""
    ray.init(address, namespace="serve", logging_level=logging.WARNING, log_to_driver=False)
    options: dict[str, Any] = {
        "max_ongoing_requests": 1000,
        "ray_actor_options": {"num_cpus": 0},
        "logging_config": LoggingConfig(log_level=logging.WARNING, enable_access_log=False),
    }
    replica = serve.deployment(EchoReplica).options(**options)
    ingress = serve.deployment(EchoIngress).options(**options)
    serve.run(ingress.bind(replica.bind()), name=ECHO, route_prefix="/echo")
    ray.shutdown()  # from the cluster; the application stays
