"""Operators that take indices or lengths from a request, and runs of them in a process that may end by a signal."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import EngineError
from trtnode.engines.runtime.executor import Executable

FILL = 7.0
"""Every element of the data, so that any other value in a result comes from elsewhere."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A graph of one operator, whose input ``i`` holds indices.

    Attributes:
        graph: Its inputs, constants and nodes, where ``INDICES`` stands for them, and ``SUM`` for nodes before.
        dtype: Of the indices.
        shape: Likewise.
        size: The size that they point into.
        floats: Shapes of the other inputs.
        column: True if the indices' other columns are 0.
        result: Type of the result ``y``.
        opset: Of the model: the last that ONNX Runtime has the operator of.
    """

    graph: str
    shape: tuple[int, ...]
    size: int
    floats: dict[str, tuple[int, ...]]
    dtype: str = "int64"
    column: bool = False
    result: str = "float[M, N]"
    opset: int = 21

    def text(self, *, computed: bool = False, dynamic: bool = False) -> str:
        """Return the model: indices as they come, or the sums of two inputs."""
        declared = [f"{self.dtype}{_dims('i', self.shape, dynamic=dynamic)} i"]
        declared += [f"float{_dims(n, s, dynamic=dynamic)} {n}" for n, s in self.floats.items()]
        made = ""
        if computed:  # in 32 bits, in which the engine adds
            declared[0:1] = [f"int32{_dims('i', self.shape, dynamic=dynamic)} {name}" for name in ("i", "more")]
            made = "s = Add(i, more) j = Cast<to = 7>(s)" if self.dtype == "int64" else "j = Add(i, more)"
        graph = self.graph.replace("SUM", made).replace("INDICES", "j" if computed else "i")
        return f"g ({', '.join(declared)}) => ({self.result} y) {graph}"

    def feeds(self, index: int, *, computed: bool = False) -> dict[str, np.ndarray]:
        """Return inputs whose indices are all the same."""
        indices = np.full(self.shape, index, np.int32 if computed else self.dtype)
        if self.column:
            indices[..., 1:] = 0
        more = {"more": np.zeros(self.shape, np.int32)} if computed else {}
        return {"i": indices, **more, **{n: np.full(s, FILL, np.float32) for n, s in self.floats.items()}}

    def indices(self, *, computed: bool = False) -> list[int]:
        """Return indices inside, at the ends, and far beyond them, which the type holds."""
        ends = np.iinfo(np.int32 if computed else self.dtype)
        asked = [0, self.size - 1, -1, -self.size, -self.size - 1, self.size, self.size + 1, 100 * self.size]
        asked += [sign * 2**power for sign in (1, -1) for power in (20, 31, 62)] + [2**31 - 1]
        return [index for index in asked if ends.min <= index <= ends.max]


def _dims(name: str, shape: Iterable[int], *, dynamic: bool) -> str:
    return f"[{', '.join(f'{name}{axis}' if dynamic else str(size) for axis, size in enumerate(shape))}]"


def _recurrent(op_type: str, gates: int) -> Case:
    sizes = {"w": f"1, {2 * gates}, 3", "r": f"1, {2 * gates}, 2", "b": f"1, {4 * gates}"}
    counts = {"w": 6 * gates, "r": 4 * gates, "b": 4 * gates}
    weights = ", ".join(f"float[{sizes[n]}] {n} = {{{', '.join(['0.5'] * counts[n])}}}" for n in sizes)
    graph = f"<{weights}> {{ SUM y = {op_type}<hidden_size = 2>(x, w, r, b, INDICES) }}"
    return Case(graph=graph, shape=(2,), size=5, floats={"x": (5, 2, 3)}, dtype="int32", result="float[A, B, C, D]")


CASES = {
    "GRU": _recurrent("GRU", 3),
    "Gather": Case(graph="{ SUM y = Gather(x, INDICES) }", shape=(3,), size=70, floats={"x": (70, 33)}),
    "Gather-columns": Case(graph="{ SUM y = Gather<axis = 1>(x, INDICES) }", shape=(3,), size=4, floats={"x": (5, 4)}),
    "GatherElements": Case(graph="{ SUM y = GatherElements(x, INDICES) }", shape=(5, 4), size=5, floats={"x": (5, 4)}),
    "GatherND": Case(
        graph="{ SUM y = GatherND(x, INDICES) }",
        shape=(3, 2),
        size=5,
        floats={"x": (5, 4)},
        column=True,
        result="float[M]",
    ),
    "GatherND-rows": Case(graph="{ SUM y = GatherND(x, INDICES) }", shape=(3, 1), size=5, floats={"x": (5, 4)}),
    "GatherND-batches": Case(
        graph="{ SUM y = GatherND<batch_dims = 1>(x, INDICES) }",
        shape=(5, 1),
        size=4,
        floats={"x": (5, 4)},
        result="float[M]",
    ),
    "LSTM": _recurrent("LSTM", 4),
    "OneHot": Case(
        graph="<int64 d = {5}, float[2] v = {0, 7}> { SUM y = OneHot(INDICES, d, v) }",
        shape=(3,),
        size=5,
        floats={},
    ),
    "RNN": _recurrent("RNN", 1),
    "ReverseSequence": Case(graph="{ SUM y = ReverseSequence(x, INDICES) }", shape=(4,), size=5, floats={"x": (5, 4)}),
    "RoiAlign": Case(
        graph="{ SUM y = RoiAlign<output_height = 2, output_width = 2>(x, r, INDICES) }",
        shape=(2,),
        size=3,
        floats={"x": (3, 1, 8, 8), "r": (2, 4)},
        result="float[A, B, C, D]",
    ),
    "RotaryEmbedding": Case(
        graph="{ SUM y = RotaryEmbedding(x, c, s_, INDICES) }",
        shape=(1, 3),
        size=5,
        floats={"x": (1, 2, 3, 4), "c": (5, 2), "s_": (5, 2)},
        result="float[A, B, C, D]",
        opset=23,
    ),
    "ScatterElements": Case(
        graph="{ SUM y = ScatterElements(x, INDICES, u) }", shape=(2, 4), size=5, floats={"x": (5, 4), "u": (2, 4)}
    ),
    "ScatterElements-added": Case(
        graph='{ SUM y = ScatterElements<axis = 1, reduction = "max">(x, INDICES, u) }',
        shape=(5, 2),
        size=4,
        floats={"x": (5, 4), "u": (5, 2)},
    ),
    "ScatterND": Case(
        graph="{ SUM y = ScatterND(x, INDICES, u) }",
        shape=(3, 2),
        size=5,
        floats={"x": (5, 4), "u": (3,)},
        column=True,
    ),
}


Outcomes = dict[str, dict[int, Any]]
"""By case and index: the result as lists, with the reason for which it was answered natively; or the error; or the
number of the signal."""


def sweep(files: dict[str, pathlib.Path], *, computed: bool = False, most: float = math.inf) -> Outcomes:
    """Run each file with each index, in child processes: another one follows where one ends by a signal.

    Args:
        files: Models, by the name of their case.
        computed: True if their indices are sums.
        most: Largest index; Python counts up to lengths.
    """
    indices = {name: CASES[name].indices(computed=computed) for name in files}
    pending = [[n, str(path), index] for n, path in files.items() for index in indices[n] if abs(index) <= most]
    outcomes: Outcomes = {name: {} for name in files}
    while pending:
        command = [sys.executable, __file__, json.dumps([computed, pending])]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in child.stdout.splitlines() if line.startswith("[")]
        for line, (name, _, index) in zip(lines, pending, strict=False):
            outcomes[name][index] = json.loads(line)
        if len(lines) < len(pending):
            name, _, index = pending[len(lines)]
            outcomes[name][index] = ["signal", child.returncode, child.stderr[-500:]]
        pending = pending[len(lines) + 1 :]
    return outcomes


def run_case(name: str, executable: Executable, index: int, *, computed: bool) -> list[Any]:
    """Run a case once; return its outcome, as ``Outcomes`` has it."""
    reasons: list[str] = []
    executable.on_fallback = reasons.append
    try:
        result = executable.run(CASES[name].feeds(index, computed=computed))["y"]
    except EngineError as error:
        return ["error", str(error)]
    return ["result", np.asarray(result, np.float64).round(4).tolist(), reasons]


if __name__ == "__main__":
    is_computed, asked = json.loads(sys.argv[1])
    opened: dict[str, Executable] = {}
    for name, path, index in asked:
        if path not in opened:
            opened[path] = open_model(pathlib.Path(path))
        print(json.dumps(run_case(name, opened[path], index, computed=is_computed)), flush=True)
