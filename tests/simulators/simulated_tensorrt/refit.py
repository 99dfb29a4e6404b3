"""Putting weights back into an engine, or other ones."""

from __future__ import annotations

from typing import Any

import onnx

from simulated_tensorrt.engine import ICudaEngine
from simulated_tensorrt.reader import ModelReader
from simulated_tensorrt.values import ILogger, ShowsLogger
from simulated_tensorrt.weights import hash_weights, size_bytes


class Refitter(ShowsLogger):
    """Collects weights; ``refit_cuda_engine`` takes them over."""

    def __init__(self, engine: ICudaEngine, logger: ILogger) -> None:
        super().__init__(logger)
        if not engine.refittable:
            self._error("The engine was not built to be refitted.")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        self._engine = engine
        self._given: dict[str, onnx.TensorProto] = {}

    def get_all_weights(self) -> list[str]:
        return [tensor.name for tensor in self._engine._weights.graph.initializer]

    def get_missing_weights(self) -> list[str]:
        return [name for name in self._engine._missing_weights if name not in self._given]

    def refit_cuda_engine(self) -> bool:
        return self._refit()

    def _give(self, tensor: onnx.TensorProto) -> bool:
        """Take a weight; False where the engine was built for another type or size."""
        built = next(t for t in self._engine._weights.graph.initializer if t.name == tensor.name)
        if (built.data_type, size_bytes(built)) != (tensor.data_type, size_bytes(tensor)):
            self._error(f"{tensor.name}: weights of another type or count than the engine was built with.")
            return False
        self._given[tensor.name] = tensor
        return True

    def _refit(self) -> bool:
        problem = self._problem()
        if problem:
            self._error(problem)
            return False
        for tensor in self._engine._weights.graph.initializer:
            if tensor.name in self._given:
                tensor.CopyFrom(self._given[tensor.name])
                self._engine._missing_weights.pop(tensor.name, None)
        self._engine._forget_executable()
        return True

    def _problem(self) -> str:
        if self._sim.faults.refit_fails:
            return "Refitting failed: out of memory"
        missing = self.get_missing_weights()
        if missing:
            return f"Weights are missing: {missing}"
        others = [
            name
            for name, built in self._engine._plan.stripped.items()
            if "REFIT" not in self._engine._plan.flags and hash_weights(self._given[name]) != built
        ]
        return f"Weights are not those that the engine was built with: {others}" if others else ""


class OnnxParserRefitter(ModelReader):
    """Takes weights out of an ONNX model."""

    def __init__(self, refitter: Refitter, logger: ILogger) -> None:
        super().__init__(logger)
        self._refitter = refitter

    def refit_from_bytes(self, model: Any, path: str | None = None) -> bool:
        return self._load(model, path) and self._take()

    def refit_model_proto(self) -> bool:
        return self._take()

    def _take(self) -> bool:
        assert self._loaded is not None
        names = set(self._refitter.get_all_weights())
        for tensor in self._loaded.graph.initializer:
            if tensor.name in names and not self._refitter._give(tensor):
                self._refuse("REFIT_FAILED", f"Failed to set the weights of {tensor.name}.")
                return False
        missing = self._refitter.get_missing_weights()
        if missing:
            self._refuse("REFIT_FAILED", f"The model lacks weights: {missing}")
        return not missing
