"""Errors between a segment and the answer to a request."""

from __future__ import annotations

import errno
import pathlib
from collections.abc import Sequence

from trtnode.partitioner.errors import ProjectError


class EngineError(ProjectError):
    """Base of every error of this package."""


class SystemLimitError(ProjectError):
    """The system gives this program no more of something.

    That says nothing about a model or an engine, so this is none of their errors, and nothing is kept of it.
    """


class ThreadLimitError(SystemLimitError):
    """A user or container may have no more processes and threads."""

    def __init__(self, source: str = "", most: int = 0, needed: int = 0) -> None:
        told = f"{source} allows {most}, and about {needed} are needed" if source else "it doesn't tell its limit"
        super().__init__(f"The system starts no more processes or threads: {told}. Raise the limit.")


class UnknownBackendError(EngineError):
    """A name that no backend has."""

    def __init__(self, name: str, known: str) -> None:
        super().__init__(f"There is no engine {name!r}. Use one of: {known}.")


class BackendMissingError(EngineError):
    """The library of an engine, or a part that it needs, is not installed here."""


class ModelLoadError(EngineError):
    """The native executor refuses a model, so there is no way to run it."""

    def __init__(self, model: str, reason: str) -> None:
        advice = "Only models that it runs can be used."
        if "not a registered function/op" in reason:
            advice = "If a library has it, give that with --custom-op-library, or custom_op_libraries in servable.yaml."
        super().__init__(f"{model}: onnxruntime can't load this model: {reason.rstrip('.')}. {advice}")


class CustomOperatorsError(EngineError):
    """A library of custom operators can't be used."""

    exit_code = 2

    def __init__(self, library: object, problem: str) -> None:
        super().__init__(
            f"{library}: this library of custom operators {problem}. Give one that ONNX Runtime's "
            "register_custom_ops_library takes on this machine."
        )


class NoFallbackError(ModelLoadError):
    """A compiled model can't run natively, because it has no native fallback."""

    def __init__(self, model: str) -> None:
        EngineError.__init__(
            self,
            f"{model}: only its engines run this model, since it has no native fallback, and they can't be used here. "
            "Compile the model that it was made from, on this machine.",
        )


class ReferenceNeededError(ModelLoadError):
    """Only onnx.reference has some nodes of a model, and it must not run here."""

    def __init__(self, model: str, nodes: str) -> None:
        EngineError.__init__(
            self,
            f"{model}: neither ONNX Runtime nor an engine has a kernel for {nodes}. onnx.reference runs them, slowly: "
            "allow it with `reference: true` for this model in servable.yaml.",
        )


class WrongReferenceError(ModelLoadError):
    """Only onnx.reference runs a node, and is known to answer wrongly."""

    def __init__(self, node: str, op_type: str, fault: str) -> None:
        EngineError.__init__(
            self,
            f"Node {node!r}: ONNX Runtime refuses this {op_type}, and onnx.reference must not run it, "
            f"because it {fault}.",
        )


class AlreadyCompiledError(EngineError):
    """A model to compile holds TrtNodes already."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(f"{path}: this model is compiled already. Name the model that it was made from.")


class BuildError(EngineError):
    """A backend refused to build an engine. The library is fine and may build others."""


class UnknownShapeError(BuildError):
    """Shapes to build for are not known for some inputs of a segment."""

    def __init__(self, names: Sequence[str], sentence: str) -> None:
        super().__init__(sentence)
        self.names = tuple(names)


class EngineRejectedError(EngineError):
    """An engine may not run here: damaged, or made by another version or for another machine.

    Attributes:
        segment: Name of its segment.
        reason: A sentence.
        remedy: Where it is known, what makes the engine run here, as an instruction.
    """

    remedy = ""

    def __init__(self, segment: str, reason: str) -> None:
        super().__init__(f"The engine of {segment} can't be used: {reason}")
        self.segment = segment
        self.reason = reason


class InvalidInputError(EngineError):
    """A caller's inputs do not fit the model."""


class StateError(EngineError):
    """The state of a model is not as a user says."""

    exit_code = 2

    def __init__(self, problem: str) -> None:
        super().__init__(f"state: {problem}.")


class ExecutionError(EngineError):
    """A run failed although its inputs fit the model's declared types.

    Attributes:
        node: The node at which it ended, where the library names one.
    """

    node = ""


class MemoryLimitError(ExecutionError):
    """A run asks for more memory than models may use."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The request asks for more memory than models may use here: {reason.rstrip('.')}.")


class LastResortError(ExecutionError):
    """onnx.reference failed on a node that nothing else runs, so there is no use in trying again natively."""


EMPTY_TENSOR = "empty_tensor"
"""Reason of an ``OutOfRangeError`` about a tensor without elements."""

LARGE_RESULT = "large_result"
"""Reason of one about a result that would take more memory than models may use."""


class OutOfRangeError(ExecutionError):
    """An engine can't compute with these values; the native path can.

    Attributes:
        reason: Short name for logs and metrics.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class DeviceLostError(ExecutionError):
    """The GPU's context is damaged beyond repair. Whatever it has computed since is doubtful."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The GPU can't be used any more in this process ({reason}). Restart the server.")


class WorkerError(EngineError):
    """The child process that builds and checks engines crashed or did not finish in time."""


class OutOfMemoryError(WorkerError):
    """There is no more memory for a process."""

    def __init__(self, problem: str = "It takes more memory than its process may use.") -> None:
        super().__init__(problem)


class WorkerTimeoutError(WorkerError):
    """The child process did not finish in time, and was killed."""

    def __init__(self, work: str, timeout_s: float) -> None:
        super().__init__(f"{work} took longer than {timeout_s:g} s and was stopped.")


class ProcessStartError(SystemLimitError):
    """The system starts no child process."""

    def __init__(self, program: str, error: OSError) -> None:
        advice = _START_ADVICE.get(error.errno or 0, "Check the limits of this user and of the machine.")
        super().__init__(f"A process of {program} can't be started ({error.strerror or error}). {advice}")


_START_ADVICE = {
    errno.ENOENT: "The interpreter has gone or was replaced: start this program again.",
    errno.EACCES: "Check that this user may run it.",
    errno.EAGAIN: "This user or container has as many processes as it may: raise the limit (ulimit -u, pids.max).",
    errno.ENOMEM: "The machine or container has no memory left: free some, or raise its limit.",
    errno.EMFILE: "This process has as many files open as it may: raise the limit (ulimit -n).",
}


class MetricError(EngineError):
    """A user's own measure of accuracy can't be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The metric {name!r} can't be used: {reason}. Modules are looked up from the working directory."
        )


class NotRunHereError(EngineError):
    """An option that needs engines to run on this machine, where they are only built."""

    exit_code = 2

    def __init__(self, option: str, engine: str, reason: str) -> None:
        remedy = "Do that on a machine that runs them."
        super().__init__(f"{option} runs engines, and those of {engine} are only built here: {reason}. {remedy}")


class PrecisionError(EngineError):
    """A precision that can't be had: the backend lacks it, or something that it needs is missing."""

    exit_code = 2


class OutputFileError(EngineError):
    """A result can't be written."""

    def __init__(self, path: pathlib.Path, reason: str) -> None:
        super().__init__(f"{path}: can't be written ({reason}). Check the folder, its permissions and free space.")


class OverwriteError(EngineError):
    """A result would replace what it is made from."""

    exit_code = 2

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(f"{path}: this file is read, so nothing is written in its place. Name another one to write.")


class InputShapesError(EngineError):
    """Shapes that engines are to be built for don't fit the model."""

    exit_code = 2

    def __init__(self, profile: int, name: str, problem: str) -> None:
        super().__init__(f"Shapes of input {name!r}, profile {profile}: {problem}.")


class KeyFileError(EngineError):
    """A file is no key, can't be read or written, or is open to others."""

    exit_code = 2

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}.")


class SigningError(EngineError):
    """A model can't be signed."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class CalibrationDataError(EngineError):
    """Samples for calibration can't be read, or don't fit the model."""

    def __init__(self, source: str, problem: str, advice: str = "Correct the data.") -> None:
        super().__init__(f"{source}: {problem.rstrip('.')}. {advice}")


class CalibrationTableError(EngineError):
    """A file is no calibration table, or one that doesn't belong to the model."""

    def __init__(self, path: pathlib.Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}. Make it again with `trtnode calibrate`.")


class PruningError(EngineError):
    """A model has no weights that can be pruned, or not those that were asked for."""


class QuantizationError(EngineError):
    """A model can't be brought into a form that holds quantized tensors."""
