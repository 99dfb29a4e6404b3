"""A server in this process."""

from __future__ import annotations

import argparse
import os
import pathlib
from types import TracebackType
from typing import Any, Self

from trtnode.serving.config.command_line import config_from
from trtnode.serving.errors import ServingError
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server
from trtnode.serving.schema.server import ServableConfig

CONFIG_SUFFIXES = (".yaml", ".yml")


class RunningServer:
    """A server that answers until ``stop``, or until the end of its ``with`` block.

    Attributes:
        address: ``host:port`` of gRPC.
        http_address: ``host:port`` of REST, probes and metrics.
    """

    def __init__(self, config: ServableConfig, timeout_s: float) -> None:
        """Start, and wait until every required model is ready.

        Raises:
            ServingError: A port can't be opened, a model didn't load, or not in time.
        """
        self._config = config
        self._server = Server(config, engine_loader(config))
        self._server.start()
        if not self._server.wait_ready(timeout_s):
            self.stop()
            raise self._server.failure or ServingError(f"The server isn't ready after {timeout_s:g} s.")
        self.address = f"{config.server.grpc.host}:{self._server.port}"
        self.http_address = f"{config.server.http.host}:{self._server.http_port}"

    def __repr__(self) -> str:
        if self._server.at_rest:
            return "<RunningServer, stopped>"
        models = ", ".join(f"{one.name} ({one.engine})" for one in self._server.models)
        return f"<RunningServer, gRPC at {self.address}, HTTP at {self.http_address}: {models}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> bool:
        """Refuse new requests and finish those in flight; return whether every one was answered in time."""
        return self._server.stop(self._config.server.shutdown_grace_s)


def serve(
    source: str | os.PathLike[str],
    *,
    name: str | None = None,
    host: str | None = None,
    port: int | None = None,
    http_port: int | None = None,
    timeout_s: float = 1800,
    **named: Any,
) -> RunningServer:
    """Serve over gRPC and REST (KServe V2) from this process, and return when all models are ready.

    Args:
        source: An ONNX file, a folder of version folders, or a servable.yaml.
        name: Of the model in requests; by default that of the file.
        host: Address to listen on; 127.0.0.1, or what servable.yaml says, by default.
        port: Of gRPC; 0 for any free one, 8001 by default.
        http_port: Of HTTP; 0 for any free one, 8002 by default.
        timeout_s: Longest wait for the models, in seconds.
        named: Options of the compilation of one file, by name, as of ``compile``.

    Returns:
        The server, which answers until ``stop``, or until the end of its ``with`` block.

    Raises:
        ServingError: The configuration can't be used, a port can't be opened, or a model didn't load.

    Example:
        >>> import trtnode
        >>> with trtnode.serve("model.onnx", name="digits", engine="native", port=0, http_port=0) as server:
        ...     print(server)  # doctest: +ELLIPSIS
        <RunningServer, gRPC at 127.0.0.1:..., HTTP at 127.0.0.1:...: digits (native)>
        >>> server
        <RunningServer, stopped>
    """
    path = pathlib.Path(source)
    is_config = path.suffix in CONFIG_SUFFIXES
    arguments = argparse.Namespace(
        on=None,
        model=None if is_config else path,
        config=path if is_config else None,
        model_repository=None,
        model_control_mode="none",
        load_model=[],
        name=name,
        host=host,
        port=port,
        http_port=http_port,
    )
    return RunningServer(config_from(arguments, named), timeout_s)
