"""The fuzzed functions: each target with its input and the check of how it ends."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable
from typing import Any

import onnx
from hypothesis import strategies as st

from tests.fuzz import mutations
from tests.fuzz.commands import Commands
from tests.fuzz.fuzzed_server import FuzzedServer
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model

CONFIGS: list[Any] = [
    {
        "server": {
            "grpc": {"port": 0, "workers": 2, "max_message_mb": 64},
            "http": {"port": 0, "host": "127.0.0.1"},
            "admin": {"repository": True},
            "limits": {"streams": 4},
            "log": {"level": "info"},
        },
        "cache": {"dir": "cache", "max_gb": 1.5},
        "trust": {"keys": [], "allow_unsigned": ["openvino"]},
        "models": [
            {
                "name": "m",
                "path": "model.onnx",
                "batching": {"max_batch_size": 4, "preferred_batch_sizes": [2]},
                "shapes": [{"x": {"min": [1, 3], "opt": [2, 3], "max": [4, 3]}}],
                "precision_rules": [{"node": "a*", "precision": "fp16"}],
                "preprocess": [{"decode": {"size": [8, 8]}}, {"normalize": {"mean": [0.5], "std": [0.5]}}],
                "postprocess": [{"softmax": {}}, {"top_k": {"k": 2, "labels": "labels.txt"}}],
                "versions": {"latest": 1},
            }
        ],
    },
    {"models": [{"name": "m", "path": "model.onnx"}]},
]
TOKENS: list[Any] = [
    {
        "tokens": [
            {"name": "ci", "token": "0123456789abcdef0123456789abcdef", "models": ["*"]},
            {"name": "b", "sha256": "0" * 64, "models": ["m"], "admin": ["repository"]},
        ]
    }
]

BOMBS = re.compile(r"MemoryError|bad_alloc|std::bad|Cannot allocate|cannot allocate|ended with (-9|137)")
"""A case that takes more memory than it may. Its bound is the subject of tests of its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One way in.

    Attributes:
        name: Of the target, and of its folder in the corpus.
        cases: Input.
        outcome: Gives input to the program; returns what is wrong with how that ends, empty if nothing is.
        examples: Cases a round, so that each target gets about as much time.
        shrinks: Whether what is found is shortened; that takes hundreds of cases.
    """

    name: str
    cases: st.SearchStrategy[bytes]
    outcome: Callable[[bytes], str]
    examples: int
    shrinks: bool = True


class Targets:
    """All targets, with their processes."""

    def __init__(self, folder: pathlib.Path) -> None:
        for name in ("commands", "server"):
            (folder / name).mkdir(mode=0o700)
        self._commands = Commands(folder / "commands")
        self._server = FuzzedServer(folder / "server")
        self._source = folder

    def all(self) -> list[Target]:
        """Return the targets."""
        run = self._commands.outcome
        return [
            Target("explain", mutations.models(), lambda data: run("explain", data), 12, shrinks=False),
            Target("compile", mutations.models(), lambda data: run("compile", data), 3, shrinks=False),
            Target(
                "compiled",
                mutations.compiled_files(self._compiled()),
                lambda data: run("compiled", data),
                8,
                shrinks=False,
            ),
            Target("indices", mutations.indices(), lambda data: run("indices", data), 40),
            Target("yaml", mutations.yaml_files(CONFIGS), lambda data: run("yaml", data), 150),
            Target("odd", mutations.odd_files(), lambda data: run("odd", data), 8, shrinks=False),
            Target("tokens", mutations.yaml_files(TOKENS), lambda data: run("tokens", data), 150),
            Target("load", mutations.models(), lambda data: self._server.call(load_call(data)), 20, shrinks=False),
            Target("grpc", mutations.grpc_calls(), self._server.call, 150),
            Target("rest", mutations.rest_calls(), self._server.post, 100),
        ]

    def check(self, name: str, data: bytes) -> str:
        """Return the outcome of one case, by the name of its target."""
        if name in ("grpc", "rest", "load"):
            body = load_call(data) if name == "load" else data
            return self._server.post(body) if name == "rest" else self._server.call(body)
        return self._commands.outcome(name, data)

    def close(self) -> None:
        """End the processes."""
        self._commands.close()
        self._server.close()

    def _compiled(self) -> bytes:
        source, compiled = self._source / "source.onnx", self._source / "compiled.onnx"
        text = f'<ir_version: 10, opset_import: ["": 21]> {mutations.MODEL_TEXTS[0]}'
        onnx.save(onnx.parser.parse_model(text), source)
        compile_model(source, CompileOptions(engine="openvino", all_engines=True)).save(compiled)
        return compiled.read_bytes()


def load_call(model: bytes) -> bytes:
    """Return a fuzzed call that brings a model to the server."""
    request = mutations.VALID_MESSAGES["RepositoryModelLoad"][0]
    changed = type(request)()
    changed.CopyFrom(request)
    changed.parameters["file:1/model.onnx"].bytes_param = model
    return b"RepositoryModelLoad\n" + changed.SerializeToString()
