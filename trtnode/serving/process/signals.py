"""A server as the whole job of a process: signals, and the exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from trtnode.engines.process_memory import keep_free_memory
from trtnode.engines.system_limits import SERVER_TASKS, reserve_tasks
from trtnode.partitioner.model.garbage import freeze
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.process.single_process import Server
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.security.descriptors import raise_descriptor_limit
from trtnode.serving.service.stoppable import Stoppable
from trtnode.serving.telemetry import logs
from trtnode.serving.workers.supervisor import Supervisor

logger = logging.getLogger(__name__)


def serve(config: ServableConfig, log_level: str | None) -> int:
    """Serve until a signal; return the exit code.

    Args:
        config: What to serve.
        log_level: The one that the user asked for; None takes that of the configuration.

    Raises:
        ConfigError: The tokens file can't be used.
        TlsError: The certificates can't be used.
        AddressError: A port can't be opened.
        ModelLoadFailedError: A required model didn't load.
        ThreadLimitError: There is no room for its threads.
    """
    if log_level is None:
        logging.getLogger().setLevel(config.server.log.level.upper())
    logs.use_format(config.server.log.format)
    reserve_tasks(SERVER_TASKS)
    raise_descriptor_limit()
    keep_free_memory()
    several = config.server.grpc.workers > 1
    return run_until_signal(config, Supervisor(config) if several else Server(config, engine_loader(config)))


def run_until_signal(config: ServableConfig, server: Stoppable) -> int:
    """Run a server until SIGTERM or SIGINT, then stop it within the configured time; a second signal ends it at once.

    Returns:
        0 if every accepted request was answered, else 1.

    Raises:
        AddressError: A port can't be opened.
        ModelLoadFailedError: A required model didn't load.
    """
    _watch_signals(server)
    freeze()  # modules stay: looking for garbage among them would hold up requests
    server.start()
    server.wait_for_stop()
    drained = server.stop(config.server.shutdown_grace_s)
    if server.failure is not None:
        raise server.failure
    logger.info("stopped")
    code = 0 if drained else 1
    if not server.at_rest:
        _end_now(code)  # the interpreter would wait for the threads that are at work
    return code


def _watch_signals(server: Stoppable) -> None:
    """Let SIGTERM and SIGINT stop the server, whichever thread the system interrupts for them.

    Python runs signal handlers in the main thread once that wakes up, which it doesn't while it waits for a lock and
    the signal went to another thread. So a thread of its own reads the numbers that the interpreter writes to a pipe.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    threading.Thread(target=_follow_signals, args=(reading, server), name="signals", daemon=True).start()


def _follow_signals(reading: int, server: Stoppable) -> None:
    os.read(reading, 1)
    server.ask_to_stop()
    second = os.read(reading, 1)[0]
    _end_now(128 + second)


def _end_now(code: int) -> None:
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)
