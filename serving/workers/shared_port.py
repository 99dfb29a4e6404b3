"""The gRPC port that workers share."""

from __future__ import annotations

import contextlib
import socket

from trtnode.serving.errors import AddressError
from trtnode.serving.grpc.port_check import check_port
from trtnode.serving.schema.server import GrpcConfig


def reserve(config: GrpcConfig) -> socket.socket:
    """Bind the port without listening on it, so that no other server gets it while no worker has it open.

    Returns:
        The socket, to be kept until the end. Sockets of the same user may share its port if they ask for that
        (SO_REUSEPORT); the system gives new connections to those that listen.

    Raises:
        AddressError: The port can't be had.
    """
    with contextlib.ExitStack() as stack:
        try:
            check_port(config.host, config.port)
            family, *_, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
            reserved = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            # Connections of a server that has just ended are no obstacle here; this socket is one to who comes later.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind(address)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError as error:
            raise AddressError("grpc", config.host, config.port, error) from None
        stack.pop_all()
    return reserved
