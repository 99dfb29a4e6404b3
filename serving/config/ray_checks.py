"""Checks of a servable.yaml by where it is served: what a Ray cluster can't do, and what only a cluster can."""

from __future__ import annotations

from collections.abc import Iterator

from trtnode.serving.schema.server import ServableConfig, ServerConfig
from trtnode.serving.schema.yaml_reader import Location


def scaling_problems(config: ServableConfig) -> Iterator[tuple[Location, str]]:
    """Yield the place and text of each setting that only a cluster knows, for a server on one machine."""
    for index, model in enumerate(config.models):
        if model.scaling is not None:
            yield ("models", index, "scaling"), "is about a Ray cluster; serve with --on ray, or leave it out"


def cluster_problems(config: ServableConfig) -> Iterator[tuple[Location, str]]:
    """Yield the place and text of each setting that a Ray cluster can't follow."""
    yield from _process_settings(config.server)
    for index, model in enumerate(config.models):
        if model.scaling is not None:
            for key, text in model.scaling.problems():
                yield ("models", index, "scaling", key), text


LIMITS_OF_PORTS = {
    *("connection_requests", "http_connections", "http_header_bytes", "http_header_timeout_s", "shared_memory_mb"),
}
"""Limits that nothing on a cluster keeps."""


def _process_settings(server: ServerConfig) -> Iterator[tuple[Location, str]]:
    if server.grpc.workers > 1:
        yield ("server", "grpc", "workers"), "is about one machine; on Ray, models[].scaling says how many replicas"
    for section, port in (("grpc", server.grpc), ("http", server.http)):
        if port.port == 0:
            yield ("server", section, "port"), "should be a fixed port on Ray, since every node opens it; give a number"
        if port.tls is not None:
            yield ("server", section, "tls"), "is nothing that Ray's proxies have; encrypt in front of them"
    for key, allowed in server.admin.model_dump().items():
        if allowed:
            yield ("server", "admin", key), "changes one process; on Ray, change servable.yaml and deploy it again"
    for key in sorted(server.limits.model_fields_set.intersection(LIMITS_OF_PORTS)):
        yield ("server", "limits", key), "holds for a plain server's ports; Ray's proxies don't have it, leave it out"
