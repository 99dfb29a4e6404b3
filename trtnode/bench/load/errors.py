"""Errors that keep a server from being measured."""

from __future__ import annotations

from trtnode.bench.errors import BenchmarkError


class TargetError(BenchmarkError):
    """The server, the model or the inputs aren't what the arguments say. Nothing was measured."""


class UnreachableError(TargetError):
    """Nothing answers at the address."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"No server answers at {address}: {_ended(reason)} Start it, or correct the address.")


class WrongProtocolError(TargetError):
    """A gRPC server that isn't a KServe V2 server."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"The server at {address} doesn't speak KServe V2 over gRPC: {_ended(reason)}")


class UnknownModelError(TargetError):
    """The server doesn't describe the model."""

    def __init__(self, address: str, model: str, reason: str) -> None:
        super().__init__(f"The server at {address} doesn't know the model {model!r}: {_ended(reason)}")


class ModelNotReadyError(TargetError):
    """The server knows the model but can't run it now."""

    def __init__(self, address: str, model: str) -> None:
        super().__init__(f"The model {model!r} at {address} isn't ready. Wait until it is loaded, or see the log.")


class InputError(TargetError):
    """The inputs don't fit the model."""


class RefusedError(TargetError):
    """The server refuses the very first request."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"The model {model!r} refuses the first request: {_ended(reason)} "
            "Give shapes with --shape and --batch, or inputs with --inputs IN.npz."
        )


class NoAnswerError(TargetError):
    """The server takes no request for the model now, or is too slow."""

    def __init__(self, address: str, model: str, reason: str) -> None:
        super().__init__(
            f"The model {model!r} at {address} doesn't answer: {_ended(reason)} See its log, or raise --timeout."
        )


class ClientError(BenchmarkError):
    """A client process ended early."""

    exit_code = 1

    def __init__(self) -> None:
        super().__init__("A client process ended before it was done; its message stands above. Run it again.")


def _ended(reason: str) -> str:
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."
