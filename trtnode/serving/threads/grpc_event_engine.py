"""The threads of gRPC that read its sockets.

From grpcio 1.80 on, threads of an "event engine" read them and then wake the thread that takes requests off the wire.
Without it, that thread reads them itself, as it did before: a thread less to wake a request. A server answers more
small requests that way.

gRPC's core reads this from the environment when ``grpc`` is imported, and has no other switch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

POLLING: Mapping[str, str] = {"GRPC_EXPERIMENTS": "-event_engine_listener,-event_engine_client"}
"""The environment of processes whose threads read their sockets themselves."""


def read_sockets_directly() -> None:
    """Have gRPC, which is not imported yet, read sockets in the threads that wait for them, if the user has no say."""
    for name, value in POLLING.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def read_directly_by_children() -> Iterator[None]:
    """Have gRPC do that in processes that start within."""
    before = dict(os.environ)
    read_sockets_directly()
    try:
        yield
    finally:
        for name in POLLING.keys() - before.keys():
            del os.environ[name]
