"""``trtnode serve`` as a process of its own, with its log."""

from __future__ import annotations

import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import tritonclient.grpc as triton

SERVE = (sys.executable, "-m", "trtnode", "serve", "--config")
READY_S = 240


class ServerProcess:
    """A server. A thread reads its log, so that no pipe fills up."""

    def __init__(self, config: pathlib.Path, command: Sequence[str] = SERVE) -> None:
        self.child = subprocess.Popen([*command, str(config)], stderr=subprocess.PIPE, text=True)
        self._lines: list[str] = []
        self._reader = threading.Thread(target=lambda: self._lines.extend(self.child.stderr))
        self._reader.start()

    @property
    def log(self) -> str:
        return "".join(self._lines)

    @property
    def address(self) -> str:
        return re.search(r"ready on (127.0.0.1:\d+)", self.log)[1]

    @property
    def http_address(self) -> str:
        return re.search(r"HTTP on (127.0.0.1:\d+)", self.log)[1]

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + READY_S
        while text not in self.log:
            assert self._reader.is_alive() or text in self.log, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)

    def client(self) -> triton.InferenceServerClient:
        """Return a client, once the server is ready."""
        self.wait_for("ready on 127.0.0.1:")
        return triton.InferenceServerClient(self.address)

    def ended(self, timeout_s: float = READY_S) -> tuple[int, str]:
        """Wait for its end; return the exit code and the log."""
        code = self.child.wait(timeout_s)
        self._reader.join()
        return code, self.log

    def end(self, number: int = signal.SIGTERM, timeout_s: float = READY_S) -> tuple[int, str]:
        """Send a signal, and wait for its end."""
        self.child.send_signal(number)
        return self.ended(timeout_s)

    def close(self) -> None:
        self.child.kill()
        self.ended()
        self.child.stderr.close()
