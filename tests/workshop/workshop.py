"""Writes models for tests, compiles them, and opens them."""

from __future__ import annotations

import itertools
import pathlib
import typing
from collections.abc import Sequence
from typing import Any

import onnx

from stand_in_workers import AnyWorker
from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.checksum import WRITTEN_BY_US, stamp_checksum
from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.compile.prepare import prepare_model, run_options
from trtnode.engines.precision.options import PrecisionOptions
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.cut.options import PartitionOptions


def prepare_and_open(path: pathlib.Path, options: CompileOptions, cache: EngineCache | None = None) -> Executable:
    """Compile a model for this machine and open it, as a server does in two processes."""
    folder = TemporaryFolder()
    prepared = prepare_model(path, options, cache, folder.path)
    executable = open_model(
        path, cache, run_options(options), use_engines=options.engine != "native", prepared=prepared
    )
    executable.on_close = folder.close
    return executable


class Workshop:
    """Writes models, compiles them in the session's worker, and runs them."""

    def __init__(self, folder: pathlib.Path, worker: SubprocessWorker) -> None:
        self.folder = folder
        self.worker = worker
        self._numbers = itertools.count()

    def write(self, model: str | onnx.ModelProto, *, opset: int = 21, ir: int = 10, domains: str = "") -> pathlib.Path:
        """Write a model; text is a graph in ONNX's own language."""
        if isinstance(model, str):
            model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{domains}]> {model}')
        path = self.folder / f"model_{next(self._numbers)}.onnx"
        if any(entry.key == WRITTEN_BY_US for entry in model.metadata_props):
            stamp_checksum(model, path)
        onnx.save(model, path)
        return path

    def compile(
        self,
        source: pathlib.Path,
        *,
        engine: str = "openvino",
        native_ops: Sequence[str] = (),
        cache: EngineCache | None = None,
        samples: pathlib.Path | None = None,
        worker: AnyWorker | None = None,
        build: BuildOptions | None = None,
        precision: PrecisionOptions | None = None,
        **choice: Any,
    ) -> CompiledModel:
        options = CompileOptions(
            engine=engine,
            partition=PartitionOptions(native_ops=tuple(native_ops)),
            check_inputs=samples,
            tensorrt=(build or BuildOptions()).tensorrt,
            **(vars(precision) if precision else {}),
            **choice,
        )
        chosen = typing.cast("SubprocessWorker", worker or self.worker)  # tests put others in its place
        return compile_model(source, options, cache=cache, worker=chosen)

    def compile_file(self, source: pathlib.Path, **options: Any) -> pathlib.Path:
        path = self.folder / f"compiled_{next(self._numbers)}.onnx"
        self.compile(source, **options).save(path)
        return path

    def executable(self, model: str | onnx.ModelProto, *, opset: int = 21, **options: Any) -> Executable:
        return open_model(self.compile_file(self.write(model, opset=opset), **options))
