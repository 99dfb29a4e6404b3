"""Backends of tests: the reference, with faults."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.reference import ReferenceBackend, ReferenceEngine
from trtnode.engines.errors import BuildError


class ShiftedEngine(ReferenceEngine):
    """Adds one to everything it computes."""

    def run(self) -> Sequence[np.ndarray]:
        results = [np.asarray(r + np.ones((), r.dtype)) for r in super().run()]
        for buffer, result in zip(self._outputs or (), results, strict=False):
            np.copyto(buffer, result)
        return results if self._outputs is None else self._outputs

    def fork(self) -> ShiftedEngine:
        return ShiftedEngine(self._evaluator, self.inputs, self.outputs)


class UnreliableBackend(ReferenceBackend):
    """The reference, except on nodes that a test names: it refuses some and computes others wrong."""

    name = "unreliable"
    refuses: tuple[str, ...] = ()
    miscomputes: tuple[str, ...] = ()
    shown_as: str | None = None

    def version(self) -> str:
        return self.shown_as or super().version()

    def build(self, model: pathlib.Path, options: BuildOptions) -> bytes:
        for op in self.refuses:
            if any(node.op_type == op for node in onnx.load(model).graph.node):
                raise BuildError(f"{op} is too hard.")
        return super().build(model, options)

    def load(self, engine: bytes, envelope: Any, *options: Any) -> ReferenceEngine:
        loaded = super().load(engine, envelope, *options)
        lies = any(node.op_type in self.miscomputes for node in onnx.ModelProto.FromString(engine).graph.node)
        return ShiftedEngine(loaded._evaluator, loaded.inputs, loaded.outputs) if lies else loaded
