"""Engines from whose inputs nothing but what the library folds away leads to an output, run in sizes that change.

As a program, it builds and runs those of one type in a child process, so that what they do to memory ends only that.
"""

from __future__ import annotations

import ctypes.util
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import onnx

from model_texts import parse
from sweeps import TYPES, envelope_of
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.registry import get_backend

RUNS = 200

ENDS = np.array([np.iinfo(np.int64).max])

CONSTANTS = {
    "one": np.array([1]),
    "zero": np.array([0]),
    "flat": np.array([-1]),
    "rows": np.array([-1, 4]),
    "ones": np.array([1, 1]),
    "none": np.zeros(4, np.int64),
    "ends": ENDS,
}

NODES = (
    "y = Identity(x)",
    "a = Reshape(x, flat) y = Reshape(a, rows)",
    "a = Unsqueeze(x, one) y = Squeeze(a, one)",
    "a = Transpose<perm = [1, 0]>(x) y = Transpose<perm = [1, 0]>(a)",
    "y = Transpose<perm = [0, 1]>(x)",
    "y = Concat<axis = 0>(x)",
    "y = Slice(x, zero, ends)",
    "y = Pad(x, none)",
    "y = Dropout(x)",
    "y = Expand(x, ones)",
    "y = Tile(x, ones)",
)

WIDER = {"float": 10, "float16": 1, "int8": 6, "uint8": 6, "int32": 7, "int64": 6, "bool": 2}
"""Numbers of types that hold the values and are cast to and back from."""


def graphs(kind: str) -> Iterator[str]:
    own = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10}[kind]
    pair = f"a = Cast<to = {WIDER[kind]}>(x) y = Cast<to = {own}>(a)"
    for nodes in (*NODES, pair) if kind.startswith("float") else (*NODES[:-3], *NODES[-2:], pair):
        yield f"g ({kind}[N,4] x) => ({kind}[M,4] y) {{ {nodes} }}"
    several = f"{pair} z = Cast<to = {own}>(a) w = Identity(x) v = Reshape(x, flat)"
    yield f"g ({kind}[N,4] x) => ({kind}[M,4] y, {kind}[M,4] z, {kind}[M,4] w, {kind}[K] v) {{ {several} }}"


def preloaded() -> dict[str, str]:
    """The part of glibc that checks memory, from release 2.34 on."""
    return {"LD_PRELOAD": found} if (found := ctypes.util.find_library("c_malloc_debug")) else {}


def in_a_child(kind: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Build and run all engines of a type in a process whose memory is watched."""
    watched = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165", **preloaded(), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, __file__, kind, folder], env=os.environ | watched, capture_output=True, text=True, check=False
    )


def main(kind: str, folder: str) -> None:
    backend, path = get_backend("openvino"), pathlib.Path(folder, "model.onnx")
    for graph in graphs(kind):
        onnx.save(parse(graph, opset=21, **CONSTANTS), path)
        engine = backend.build(path, BuildOptions())
        loaded = backend.load(engine, envelope_of(path, engine))
        rng = np.random.default_rng(0)
        for turn in range(RUNS):
            rows = 3000 if turn % 7 == 3 else int(rng.integers(1, 60))
            x = rng.integers(0, 100, (rows, 4)).astype(TYPES[kind])
            for result in loaded.run_on([x]):
                np.testing.assert_array_equal(result.ravel(), x.ravel(), graph)
        print("right", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # what libraries free as a process ends is not judged
