from __future__ import annotations

import os
import subprocess
import tempfile

from engines.build.interpreter import start_interpreter

ECHO = """
import sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
connection.send((connection.recv(), sys.argv[2:], sys.stdin.read()))
"""


def test_a_child_talks_to_its_parent_alone() -> None:
    process, connection = start_interpreter(ECHO)

    with connection:
        connection.send({"any": "object"})
        assert connection.recv() == ({"any": "object"}, [], "")
    assert process.wait(60) == 0


def test_a_child_inherits_the_files_that_it_is_told_of() -> None:
    with tempfile.TemporaryFile() as file:
        code = "import os, sys; os.write(int(sys.argv[2]), b'from the child')"
        process, connection = start_interpreter(code, files=[file.fileno()])
        connection.close()
        assert process.wait(60) == 0

        assert os.pread(file.fileno(), 99, 0) == b"from the child"


def test_the_other_end_closes_with_its_process() -> None:
    process, connection = start_interpreter("import os; os._exit(3)", stdout=subprocess.DEVNULL)

    with connection:
        assert connection.poll(60)
    assert process.wait(60) == 3
