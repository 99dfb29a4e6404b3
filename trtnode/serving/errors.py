"""Errors between a servable.yaml, a request and its answer."""

from __future__ import annotations

import os
import pathlib
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trtnode.partitioner.errors import ProjectError


class ServingError(ProjectError):
    """Base of every error of this package."""


class Problem(NamedTuple):
    """One fault of a configuration file.

    Attributes:
        text: What is wrong and what to do about it.
        field: Where in the tree, such as ``models[0].path``; empty for the file as a whole.
        line: Where in the file, from 1.
        file: The file; None for that of the error.
    """

    text: str
    field: str = ""
    line: int | None = None
    file: pathlib.Path | None = None


class ConfigError(ServingError):
    """A configuration file can't be used. The text has one line a problem."""

    exit_code = 2

    def __init__(self, file: pathlib.Path, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(_sentence(file, problem) for problem in problems))
        self.file = file
        self.problems = tuple(problems)

    @classmethod
    def joined(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """Return one error with the problems of several files."""
        placed = [one._replace(file=one.file or error.file) for error in errors for one in error.problems]
        return cls(errors[0].file, placed)


class AddressError(ServingError):
    """The server can't listen where its configuration says."""

    exit_code = 2

    def __init__(self, section: str, host: str, port: int, error: Exception) -> None:
        option = "--port" if section == "grpc" else f"--{section}-port"
        super().__init__(
            f"can't listen on {host}:{port} ({_system_reason(error)}); "
            f"change server.{section}.port ({option}) or server.{section}.host (--host), or stop what uses the port."
        )
        self.section = section
        self.port = port


class TlsError(ServingError):
    """The certificates of a port can't be used."""

    exit_code = 2

    def __init__(self, section: str, problem: str) -> None:
        super().__init__(f"server.{section}.tls: {problem}.")


class ModelLoadFailedError(ServingError):
    """Required models didn't load. The text has one line a model."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        lines = (f"Model {model!r} is required but didn't load: {reason}" for model, reason in reasons.items())
        super().__init__("\n".join(lines))
        self.reasons = dict(reasons)


class ModelLimitError(ServingError):
    """Loading a model takes more than it may."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: loading it takes {problem}.")


class IncompleteFilesError(ServingError):
    """Files of a model are being replaced, and don't fit each other yet."""

    def __init__(self, path: pathlib.Path, name: str, needed: int, found: int) -> None:
        there = f"has {found}" if found >= 0 else "is missing"
        super().__init__(
            f"{path}: it needs {needed} bytes of {name[:255]!r}, which {there}, and is loaded when both fit; copy the "
            "files of one version."
        )


class ModelChangeError(ServingError):
    """A model can't be loaded as a request asks for. What was loaded before goes on."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"model {model[:255]!r} is not loaded: {reason}")


class UnservableModelError(ServingError):
    """The protocol can't carry a model's tensors."""

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(f"Model {model!r} can't be served: the protocol has {problem}. Run it with `trtnode run`.")
        self.model = model


class InterfaceError(ServingError):
    """A model has other inputs or outputs than its configuration says."""

    def __init__(self, model: str, problem: str) -> None:
        super().__init__(f"Model {model!r} has another interface than configured: {problem}.")


class LabelFileError(ServingError):
    """The labels of a model's classes can't be read."""

    def __init__(self, model: str, file: pathlib.Path, problem: str) -> None:
        super().__init__(f"Model {model!r}: its label_filename {str(file)!r} can't be read: {problem}. Put it there.")


class TextModelError(ServingError):
    """A file of a model of text can't be used, or doesn't fit the others."""

    def __init__(self, file: pathlib.Path, problem: str) -> None:
        super().__init__(f"{file}: {problem}.")
        self.file = file
        self.problem = problem


class InvalidOutputError(ServingError):
    """An executable gave another type than it declares."""


class InvalidOptionError(ServingError):
    """A command-line option has a value that it can't have."""

    exit_code = 2

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}.")


class NotFasterError(ServingError):
    """A compilation was to fail unless engines make the model faster."""

    def __init__(self, output: pathlib.Path, *, measured: bool) -> None:
        reason = "the measurement keeps no engine" if measured else "nothing was measured"
        super().__init__(f"--fail-if-not-faster: {reason}. {output} is written all the same.")


class MissingExtraError(ServingError):
    """An optional part of this program is configured and not installed."""

    exit_code = 2

    def __init__(self, field: str, library: str, extra: str) -> None:
        super().__init__(f"{field} needs {library}, which isn't installed. Run: pip install 'trtnode[{extra}]'")


class OldProtobufError(ServingError):
    """Another package has replaced protobuf by a version that grpcio's health and reflection services refuse."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__(
            "The installed protobuf is too old for grpcio-health-checking and grpcio-reflection. A package that was "
            "installed later, such as tritonclient, may have replaced it. Run: pip install 'trtnode[client]'"
        )


class UnsuitableGrpcioError(ServingError):
    """The installed grpcio lacks private parts that calls take."""

    exit_code = 2

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(
            f"The installed grpcio has no {', '.join(missing)}, which the gRPC port needs. "
            "Run: pip install 'grpcio>=1.80,<1.86'"
        )


class CommandLoadError(ServingError):
    """An installed command can't be imported."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Command {name!r} is installed but can't be loaded: {reason} Install the package again.")


class InvalidRequestError(ServingError):
    """The request is at fault; sending it again can't help."""


class InvalidParameterError(InvalidRequestError):
    """A field of a request for vectors or scores is at fault."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter!r} {problem}")
        self.parameter = parameter


class SequenceError(InvalidRequestError):
    """A request belongs to a sequence that isn't there."""

    def __init__(self, model: str, identity: int | str, problem: str) -> None:
        shown = identity if isinstance(identity, int) else repr(identity[:255])
        super().__init__(
            f"sequence {shown} of model {model!r} {problem}; begin it with a request that has sequence_start set"
        )


class SequencesFullError(ServingError):
    """A sequence can't begin or go on, since others take all that sequences of its model may take."""

    def __init__(self, problem: str, key: str) -> None:
        super().__init__(f"{problem}, the most (sequences.{key}), and none is idle; end some, or try later")


class UnreadableMessageError(ServingError):
    """The bytes of a request are no message of its RPC, or one of too many fields."""

    def __init__(self, rpc: str, most: int = 0) -> None:
        fields = f"of more than {most} fields, such as elements of bytes_contents" if most else "of too many fields"
        super().__init__(
            f"the message is no {rpc}Request, or a long one {fields}, or numbers; send tensors as raw_input_contents"
        )


class TooLargeError(ServingError):
    """A request is larger than the server takes."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the request has more than {most} bytes (server.grpc.max_message_mb); send less at a time")


class TooManyElementsError(TooLargeError):
    """A request, or its answer, has more elements than the server makes."""

    def __init__(self, problem: str) -> None:
        ServingError.__init__(self, problem)


class NotFoundError(ServingError):
    """The request names a model or version that isn't served."""


class UnavailableError(ServingError):
    """The server can't take the request now; later, or elsewhere, it may succeed."""


class BusyError(UnavailableError):
    """The server has as many requests as it takes."""


class UnauthenticatedError(ServingError):
    """The request comes without a token that this server knows."""


class ForbiddenError(ServingError):
    """The server, or the token of the request, doesn't allow what it asks for."""


class QueueFullError(BusyError):
    """As many requests wait for the model as may."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} requests wait for the model already (batching.max_queue_size); try later")


class QueueTimeoutError(UnavailableError):
    """A request waited for the model for longer than it may."""

    def __init__(self, waited_ms: float) -> None:
        super().__init__(
            f"the request waited {waited_ms:.0f} ms for the model, longer than its timeout or batching.timeout_ms "
            "allows; try later"
        )


class CancelledRequestError(ServingError):
    """The client left before its request was executed."""

    def __init__(self) -> None:
        super().__init__("the client cancelled the request, or its deadline passed, before it was executed")


class AlreadyExistsError(ServingError):
    """The request gives a name that is in use."""


class SharedMemoryError(ServingError):
    """Shared memory that a client named can't be opened, or is too small for an output."""


class WorkerGoneError(ServingError):
    """A worker process ended before it answered another process of the server."""


class PartlyDoneError(ServingError):
    """Some worker processes did what a request asks for, others could not."""

    def __init__(self, rpc: str, done: Sequence[int], failed: Sequence[int], reason: ServingError) -> None:
        super().__init__(
            f"{rpc} is done in {_workers(done)}, but not in {_workers(failed)}: {reason}. Send it again when that is "
            "mended"
        )


class UnsupportedError(ServingError):
    """The request uses a part of the protocol that this server doesn't have."""


def _system_reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):  # its numbers are not the system's error numbers
        return str(error.strerror)
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def _workers(numbers: Sequence[int]) -> str:
    return f"worker{'s' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"


def _sentence(file: pathlib.Path, problem: Problem) -> str:
    file = problem.file or file
    place = str(file) if problem.line is None else f"{file}:{problem.line}"
    return f"{place}: {problem.field}: {problem.text}" if problem.field else f"{place}: {problem.text}"
