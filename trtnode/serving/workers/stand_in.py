"""The HTTP port while no worker has it open any more: probes and metrics go on, and all else is told to come later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from trtnode.serving.errors import AddressError, UnavailableError
from trtnode.serving.rest.ops import OpsApp
from trtnode.serving.rest.server import HttpServer
from trtnode.serving.security.authorization import Authorizer
from trtnode.serving.security.tokens import Grant

METHODS = ("GET", "POST")


class StandInApp(OpsApp):
    """Answers probes and scrapers, and no one else."""

    def __init__(
        self,
        authorizer: Authorizer,
        metrics: Callable[[str], tuple[bytes, str]],
        not_ready: Callable[[], Sequence[str]],
    ) -> None:
        """Prepare; arguments as of ``OpsApp``."""

        async def written(accept: str) -> tuple[bytes, str]:
            return await asyncio.to_thread(metrics, accept)

        super().__init__(authorizer, metrics=written, not_ready=not_ready, notes=tuple)

    def routes(self) -> list[Route]:
        """Return those that every port has, and one for all other paths."""
        return [*super().routes(), Route("/{path:path}", self.guarded("/", _nobody), methods=METHODS)]


async def _nobody(_request: Request, _grant: Grant) -> Response:
    raise UnavailableError("no worker process of the server is there now; try later")


class StandIn:
    """The HTTP port of the supervisor, open while no worker is there, as there was before.

    Attributes:
        server: The port.
    """

    server: HttpServer

    def __init__(self) -> None:
        self._had_workers = self._is_open = False

    def follow(self, *, has_workers: bool) -> None:
        """Open or close the port; one thread at a time may call this."""
        self._had_workers |= has_workers
        wanted = self._had_workers and not has_workers
        if wanted is not self._is_open:
            self._is_open = wanted
            with contextlib.suppress(AddressError):  # probes are refused, as they would be without it
                (self.server.start if wanted else self.server.stop)()
