"""One reusable child process for work that may crash or never end: building and checking engines.

The child ends with its parent: the system kills it when the parent's end of a pipe closes, through which nothing else
comes. A server that ends thus leaves no build behind, which could take another hour, not even a suspended one.

A child is a fresh interpreter that talks to this process over a socket pair, never a fork: threads of gRPC and of the
engine libraries do not survive one. Only the two processes hold an end of the pair, so sending Python objects is safe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from trtnode.engines.backends.custom_operators import libraries_in_use, using
from trtnode.engines.backends.progress import Progress, listening, report
from trtnode.engines.errors import OutOfMemoryError, ProcessStartError, WorkerError, WorkerTimeoutError
from trtnode.engines.interpreter import HeldStderr, start_interpreter, tell
from trtnode.engines.process_memory import resident_bytes
from trtnode.engines.system_limits import as_limit, check_tasks, child_tasks, out_of_memory_kills, raise_limit
from trtnode.partitioner.errors import ProjectError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

STOP_SECONDS = 5.0

KILLED = "The system has killed its process (SIGKILL), since the container or the machine has no memory left."

IMPORTS_BYTES = 256 << 20
"""With less memory, a child may end before it can tell."""

CLEAN_BYTES = 512 << 20
"""A child with more memory at rest has kept something of a job."""

PACKAGES = ("trtnode",)
"""Those whose log a child hands on."""

CHILD = (
    "import os, resource, signal, sys; os.nice({niceness}); os.sched_setaffinity(0, {cores}); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "limit = {memory_bytes}; limit and resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)); "
    "from trtnode.engines.build.subprocess_worker import serve; serve(*map(int, sys.argv[1:]), {log_level})"
)
"""Ctrl-C in a terminal reaches the child as well, which then ends without a traceback.

RLIMIT_DATA counts private memory that a process may write, so an allocation beyond it fails, and addresses that
libraries only reserve count for nothing. RLIMIT_AS would count them.
"""


class SubprocessWorker:
    """Runs functions in a child process, which is started on first use and again after a crash.

    What it logs is logged here. A call takes along the libraries of custom operators that are in use here.
    """

    def __init__(
        self, *, memory_bytes: int | None = None, niceness: int = 0, cores: Collection[int] | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            memory_bytes: Limit of the memory of the child, and of each process that it starts; None for no limit.
            niceness: By how much the child stands back behind this process where both want the processor: nice(2).
            cores: Those that the child may use; None for those of this process.
        """
        self._memory_bytes = memory_bytes
        self._niceness = niceness
        self._cores = cores
        self._is_used = False  # for good: its jobs leave something behind
        self._cancelled = False
        self._kills: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._life: Connection | None = None
        self._stderr = HeldStderr()
        self._lock = threading.Lock()

    def __enter__(self) -> SubprocessWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, function: Callable[P, R], timeout_s: float, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a module-level function in the child.

        Args:
            function: The function. Its arguments and result are sent as they are.
            timeout_s: The child is killed after this many seconds, unless its progress sets another limit.
            *args: Arguments of the function.
            **kwargs: Arguments of the function.

        Raises:
            SystemLimitError: The system starts no child, or gives it too little.
            WorkerError: The child crashed, or was killed because it took too long or was cancelled.
            OutOfMemoryError: An allocation of the function failed.
            KeyboardInterrupt: Ctrl-C ended the child.
            ProjectError: The function raised it, or a subclass.
        """
        with self._lock:
            if self._cancelled:
                raise WorkerError(f"{function.__name__} was cancelled.")
            connection = self._start()
            try:
                libraries = libraries_in_use()
                self._is_used |= bool(libraries)
                connection.send((function, args, kwargs, libraries))
                succeeded, result = self._answer(connection, function.__name__, timeout_s)
            except (EOFError, OSError) as error:
                code = self._kill(STOP_SECONDS)  # a child that crashed has its own exit code in a moment
                raise self._error_of_end(function.__name__, code) from error
            except BaseException:
                self._kill()  # its answer would be taken for the next call's
                raise
            finally:
                self._stderr.hand_on()
        if succeeded:
            answer: R = result
            return answer
        if isinstance(result, ProjectError):
            self._is_used |= isinstance(result, WorkerError)
            raise result
        self._is_used = True
        raise WorkerError(f"{function.__name__} failed: {result}")

    def _error_of_end(self, name: str, code: int | None) -> WorkerError:
        """Return the error of a call whose child has ended with some exit code.

        Raises:
            ThreadLimitError: There is no room for its threads, which ends many libraries.
            SystemLimitError: Its last words tell of a limit, as those of a library's own thread do.
            KeyboardInterrupt: Ctrl-C reached the child first.
        """
        words = self._stderr.read()
        if self._cancelled:
            return WorkerError(f"The process that ran {name} was cancelled.")
        check_tasks(child_tasks())
        if code == -signal.SIGINT and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        if code == -signal.SIGKILL and out_of_memory_kills() != self._kills:
            return OutOfMemoryError(KILLED)
        if (self._memory_bytes or IMPORTS_BYTES) < IMPORTS_BYTES:
            return OutOfMemoryError()
        raise_limit(RuntimeError(words))
        tell(words)
        return WorkerError(f"The process that ran {name} crashed (exit code {code}).")

    def _answer(self, connection: Connection, name: str, timeout_s: float) -> tuple[bool, Any]:
        """Wait for the outcome of a call, and pass its progress on."""
        deadline = time.monotonic() + timeout_s
        while connection.poll(max(0.0, deadline - time.monotonic())):
            message = connection.recv()
            if isinstance(message, Progress):
                if message.limit_s is not None:
                    timeout_s, deadline = message.limit_s, time.monotonic() + message.limit_s
                report(dataclasses.replace(message, limit_s=None))  # which is that of the call that ends here
            elif isinstance(message, Logged):
                logging.getLogger(message.name).log(message.level, "%s", message.text)
            else:
                answer: tuple[bool, Any] = message
                return answer
        self._kill()
        raise WorkerTimeoutError(name, timeout_s)

    @property
    def is_clean(self) -> bool:
        """True if the next job finds the child as a new one: with little memory, and no library of operators."""
        process = self._process
        if process is None or process.poll() is not None or self._cancelled or self._is_used:
            return False
        with contextlib.suppress(OSError):
            return resident_bytes(process.pid) <= CLEAN_BYTES
        return False

    def cancel(self) -> None:
        """Kill the child, so that a call under way ends with an error, and refuse further calls."""
        self._cancelled = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Stop the child, if there is one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_SECONDS)
            self._kill()
            self._stderr.hand_on()

    def _start(self) -> Connection:
        if self._connection is not None and self._process is not None and self._process.poll() is None:
            return self._connection
        self._kills = out_of_memory_kills()
        stdout = sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL
        code = CHILD.format(
            niceness=self._niceness,
            cores=set(self._cores or os.sched_getaffinity(0)),
            memory_bytes=self._memory_bytes,
            log_level=_lowest_level(),
        )
        try:
            stderr = self._stderr.fileno()
            theirs, self._life = multiprocessing.Pipe(duplex=False)
        except OSError as error:
            raise ProcessStartError(sys.executable, error) from error
        with theirs:
            self._process, self._connection = start_interpreter(
                code, files=[theirs.fileno()], stdout=stdout, stderr=stderr
            )
        if self._cancelled:
            self._process.kill()
        logger.debug("Started worker process %d", self._process.pid)
        return self._connection

    def _kill(self, patience_s: float = 0.0) -> int | None:
        process, self._process, self._connection = self._process, None, None
        if process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(patience_s)
        process.kill()
        return process.wait()


class SpareWorkers:
    """Lends child processes. One that comes back clean is lent again, since a start takes half a second. Thread-safe.

    Attributes:
        idle_s: Seconds that a child waits for the next job; 0 for none.
    """

    def __init__(self, make: Callable[[], SubprocessWorker], idle_s: float = 0.0) -> None:
        """Make no child yet."""
        self.idle_s = idle_s
        self._make = make
        self._idle: list[SubprocessWorker] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lent(self) -> Iterator[SubprocessWorker]:
        """Lend a child while the block runs."""
        with self._lock:
            worker = self._idle.pop() if self._idle else self._make()
        try:
            yield worker
        finally:
            if self.idle_s and worker.is_clean:
                self._keep(worker)
            else:
                worker.close()

    def _keep(self, worker: SubprocessWorker) -> None:
        with self._lock:
            self._idle.append(worker)
        timer = threading.Timer(self.idle_s, self._end, [worker])
        timer.daemon = True
        timer.start()

    def _end(self, worker: SubprocessWorker) -> None:
        with self._lock:
            if worker not in self._idle:
                return
            self._idle.remove(worker)
        worker.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Logged:
    """A line of the child's log."""

    name: str
    level: int
    text: str


class _Forwarding(logging.Handler):
    def __init__(self, send: Callable[[object], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            self._send(Logged(record.name, record.levelno, record.getMessage()))


def serve(descriptor: int, life: int, log_level: int) -> None:
    """Answer calls until the parent closes the connection, and end at once when it ends."""
    connection = Connection(descriptor)
    _end_with_parent(life)
    sending = threading.Lock()  # libraries report their progress from threads of their own

    def send(message: object) -> None:
        with sending:
            connection.send(message)

    for name in PACKAGES:
        package = logging.getLogger(name)
        package.addHandler(_Forwarding(send))
        package.setLevel(log_level)
    with listening(send):
        _answer_calls(connection, send)


def _end_with_parent(life: int) -> None:
    """Have the system kill this process, also a suspended one, when the other end of a pipe closes: F_SETSIG, fcntl(2).

    No thread is needed, nor the interpreter's lock.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:  # it was closed before
        os._exit(1)


def _answer_calls(connection: Connection, send: Callable[[object], None]) -> None:
    while True:
        try:
            function, args, kwargs, libraries = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            with using(libraries):
                answer: tuple[bool, Any] = (True, function(*args, **kwargs))
        except ProjectError as error:
            answer = (False, error)
        except MemoryError:
            answer = (False, OutOfMemoryError())
        except Exception as error:
            logger.debug("%s failed", function.__name__, exc_info=True)
            answer = (False, as_limit(error) or f"{type(error).__name__}: {error}")
        try:
            send(answer)
        except ConnectionError:
            return
        except Exception as error:  # nothing has been sent: an object is pickled as a whole first
            send((False, f"its result can't be sent ({error})"))


def _lowest_level() -> int:
    """Return the lowest level that any logger of this program has here; what a logger has not is dropped here."""
    known = list(logging.root.manager.loggerDict)  # at once: other threads import modules, which add loggers
    ours = (name for name in known if name.split(".")[0] in PACKAGES)
    return min((logging.getLogger(name).getEffectiveLevel() for name in ours), default=logging.root.level)


def _has_descriptor(stream: Any) -> bool:
    try:
        return bool(stream.fileno() >= 0)
    except (AttributeError, OSError, ValueError):
        return False
