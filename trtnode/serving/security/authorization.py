"""The table of rights, and the checks of calls that every port makes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from trtnode.serving.errors import ForbiddenError, ServingError, UnauthenticatedError
from trtnode.serving.schema.server import AdminConfig
from trtnode.serving.security.tokens import Grant, Right, Tokens
from trtnode.serving.telemetry.logs import OneASecond
from trtnode.serving.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)
logger.addFilter(OneASecond())

ADMIN_RIGHTS: Mapping[str, Right] = {
    "RepositoryModelLoad": "repository",
    "RepositoryModelUnload": "repository",
    "SystemSharedMemoryRegister": "shared_memory",
    "SystemSharedMemoryUnregister": "shared_memory",
    "CudaSharedMemoryRegister": "shared_memory",
    "CudaSharedMemoryUnregister": "shared_memory",
    "TraceSetting": "settings",
    "LogSettings": "settings",
}
"""RPCs that change the server, with the key of server.admin that allows them."""

READING_TOO = frozenset({"TraceSetting", "LogSettings"})
"""Those of them that change nothing, and are open to all, if the request's ``settings`` are empty."""

RIGHTS_TO_READ: Mapping[str, Right] = {
    "SystemSharedMemoryStatus": "shared_memory",
    "CudaSharedMemoryStatus": "shared_memory",
}
"""RPCs that change nothing and still need a right, also where server.admin allows no changes."""

MODEL_FIELDS: Mapping[str, str] = {
    "ModelReady": "name",
    "ModelMetadata": "name",
    "ModelConfig": "name",
    "ModelStatistics": "name",
    "ModelInfer": "model_name",
    "ModelStreamInfer": "model_name",
    "RepositoryIndex": "repository_name",  # which is always empty, and the index is about all models
    "RepositoryModelLoad": "model_name",
    "RepositoryModelUnload": "model_name",
    "TraceSetting": "model_name",
}
"""RPCs about a model, with the field of the request that names it; empty there means all models."""

ANYONE = Grant("anyone", b"", ("*",), frozenset(ADMIN_RIGHTS.values()))
"""The rights of callers where no tokens are configured."""


class Authorizer:
    """Decides about calls; counts and logs those that are refused."""

    def __init__(self, admin: AdminConfig, tokens: Tokens | None, metrics: Metrics) -> None:
        self._allowed = admin.model_dump()
        self._tokens = tokens
        self._metrics = metrics

    @property
    def has_tokens(self) -> bool:
        """True if calls need a token, so that each is checked."""
        return self._tokens is not None

    def lets_all(self, rpc: str) -> bool:
        """Return whether an RPC is open to every caller, about every model."""
        return not self.has_tokens and rpc not in ADMIN_RIGHTS

    def authenticate(self, authorization: str) -> Grant:
        """Return what the sender of an ``authorization`` header may do.

        Raises:
            UnauthenticatedError: It has no token that the server knows.
        """
        grant = self._tokens.find(authorization) if self._tokens else ANYONE
        if grant is None:
            raise UnauthenticatedError("a token is needed that this server knows; send 'authorization: Bearer TOKEN'")
        return grant

    def check_right(self, grant: Grant, rpc: str) -> None:
        """Check that an RPC of the inference service is on, and that the caller may use it, before it is read.

        Raises:
            ForbiddenError: It is off, or the token lacks the right.
        """
        if rpc in ADMIN_RIGHTS and rpc not in READING_TOO:
            self._check_change(grant, rpc)
        elif rpc in RIGHTS_TO_READ:
            _check_held(grant, rpc, RIGHTS_TO_READ[rpc])

    def check_request(self, grant: Grant, rpc: str, request: Any) -> None:
        """Check what only the request's message tells: the model that it names, and whether it changes settings.

        Raises:
            ForbiddenError: Changes are off, or the token lacks the right or doesn't cover the model.
        """
        if rpc in MODEL_FIELDS:
            self.check_model(grant, getattr(request, MODEL_FIELDS[rpc]))
        if rpc in READING_TOO and request.settings:
            self._check_change(grant, rpc)

    def _check_change(self, grant: Grant, rpc: str) -> None:
        right = ADMIN_RIGHTS[rpc]
        if not self._allowed[right]:
            raise ForbiddenError(f"{rpc} changes the server, which is off; server.admin.{right} allows it")
        _check_held(grant, rpc, right)

    def check_model(self, grant: Grant, model: str) -> None:
        """Check that the caller may use a model, whether or not it exists; the empty name stands for all models.

        Raises:
            ForbiddenError: The token doesn't cover it.
        """
        if not grant.covers(model):
            asked = f"model {model[:255]!r}" if model else "all models at once"
            raise ForbiddenError(f"the token {grant.name!r} doesn't cover {asked}; name one that it covers")

    def count_refusal(self, error: ServingError, what: str, peer: str) -> None:
        """Count and log a call that an error of the other methods ends."""
        reason = "unauthenticated" if isinstance(error, UnauthenticatedError) else "forbidden"
        self._metrics.add_refusal(reason)
        logger.info("Refused %s of %s: %s", what, peer, error)


def _check_held(grant: Grant, rpc: str, right: Right) -> None:
    if right not in grant.rights:
        raise ForbiddenError(f"the token {grant.name!r} has no right to {rpc}; 'admin: [{right}]' gives it")
