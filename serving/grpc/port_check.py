"""A look at the gRPC port before anything that takes long is begun."""

from __future__ import annotations

import socket

from trtnode.serving.errors import AddressError


def check_port(host: str, port: int) -> None:
    """Open and close the port once: the operating system says why it can't be had, gRPC only prints a stack of lines.

    Raises:
        AddressError: It can't be opened.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address[:2], family=family).close()
    except (OSError, OverflowError) as error:
        raise AddressError("grpc", host, port, error) from None
