"""Small files that ask for terabytes, given to every command in a process that may use one gigabyte."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.attacks import bombs

MEMORY_BYTES = 2**30

COMMANDS = {
    "explain": ["explain", "MODEL", "--no-cache"],
    "compile": ["compile", "MODEL", "-o", "OUT.onnx", "--no-cache"],
    "compile-natively": ["compile", "MODEL", "-o", "OUT.onnx", "--no-cache", "--engine", "native"],
    "run": ["run", "MODEL", "--inputs", "IN.npz", "--outputs", "OUT.npz"],
}

CODE = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY_BYTES}, {MEMORY_BYTES}))
from trtnode.serving.cli.program import main
print([main([word.replace("MODEL", model) for word in {{command!r}}]) for model in sys.argv[1:]])
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_every_bomb_with_one_sentence(command: str, tmp_path: pathlib.Path) -> None:
    for name, make in bombs.BOMBS.items():
        (tmp_path / f"{name}.onnx").write_bytes(make().SerializeToString())
    np.savez(tmp_path / "IN.npz", x=np.ones(1, np.float32))
    code = CODE.format(command=COMMANDS[command])

    run = subprocess.run(
        [sys.executable, "-c", code, *(f"{name}.onnx" for name in bombs.BOMBS)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(pathlib.Path(__file__).parents[3]), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    lines = run.stderr.splitlines()
    assert run.stdout.split() == str([1] * len(bombs.BOMBS)).split(), run.stderr
    assert [line.split(".onnx")[0] for line in lines] == [f"trtnode: {name}" for name in bombs.BOMBS]
    assert "unexpected" not in run.stderr
