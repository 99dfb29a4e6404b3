"""Models on a simulated GPU, each compared with what ONNX Runtime makes of its source."""

from __future__ import annotations

import gc
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from model_texts import parse
from simulated_tensorrt import Simulation
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.envelope import Envelope
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import Engine
from trtnode.engines.backends.registry import get_backend
from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.cuda.streams import STREAMS, StreamPool
from trtnode.engines.inputs.shape_profiles import holds_sizes
from trtnode.engines.precision.options import PrecisionOptions
from trtnode.engines.runtime.engine_loading import open_engine
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from trtnode.engines.tensorrt.backend import TensorRtBackend
from trtnode.partitioner.compiled.trtnode import embedded_engine
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.graph.view import Graph, TensorSpec
from trtnode.partitioner.model.loading import load_model

ANYONE = Trust.of((), ("openvino", "tensorrt"))
"""No signature is asked for."""

NOTHING = {"streams": STREAMS, "retained contexts": 1}
"""Objects that stay on a GPU without models."""


class Machine:
    """A machine with a simulated GPU.

    Attributes:
        simulation: Its TensorRT.
        gpu: Its GPU.
        tensorrt: The module.
        driver: That of pycuda.
        profiles: For the models that are compiled from now on, of their inputs without a fixed shape.
        build: Options of these models.
        precision: Of these models.
        plan: Bytes of the engine that ``engine`` has loaded last.
        envelope: Of that engine.
    """

    def __init__(self, simulation: Simulation, folder: pathlib.Path) -> None:
        self.simulation = simulation
        self.gpu = simulation.gpu
        self.tensorrt: Any = sys.modules["tensorrt"]
        self.driver: Any = sys.modules["pycuda.driver"]
        self.plan = b""
        self.envelope: Envelope | None = None
        self.profiles: Sequence[Profile] = ()
        self.build = BuildOptions()
        self.precision = PrecisionOptions()
        self._folder = folder
        self._number = 0

    def compile(self, model: str | pathlib.Path, **options: Any) -> tuple[pathlib.Path, pathlib.Path]:
        """Compile a file, or a graph in ONNX's text form; give the source and the result."""
        self._number += 1
        source = self._write(model) if isinstance(model, str) else model
        compiled = self._folder / f"compiled_{self._number}.onnx"
        sized = {
            value.name for value in ir.load(source).graph.inputs if value.shape is not None and value.shape.is_static()
        }
        shapes = [{name: one for name, one in profile.items() if name not in sized} for profile in self.profiles]
        options = CompileOptions(
            engine="tensorrt",
            partition=PartitionOptions(**options),
            shapes=tuple(filter(None, shapes)),
            tensorrt=self.build.tensorrt,
            **vars(self.precision),
        )
        compile_model(source, options, worker=InProcessWorker()).save(compiled)  # type: ignore[arg-type]
        return source, compiled

    def load(self, model: str | pathlib.Path, **options: Any) -> Loaded:
        """Compile a model and load it."""
        source, compiled = self.compile(model, **options)
        return Loaded(open_model(compiled, run=RunOptions(trust=ANYONE)), onnxruntime.InferenceSession(source))

    def engine(self, graph: str) -> Engine:
        """Compile a graph of one segment, and load its engine alone."""
        _, compiled = self.compile(graph)
        graph = Graph.of(ir.load(compiled))
        (node,) = graph.nodes
        self.plan = embedded_engine(node.op).engine or b""
        self.envelope, engine = open_engine(graph, node, self._folder)
        return engine

    @property
    def streams(self) -> StreamPool:
        """Of the GPU."""
        backend = get_backend("tensorrt")
        assert isinstance(backend, TensorRtBackend)
        return backend.streams()

    def clean(self) -> None:
        """Free what models have left that nobody refers to."""
        gc.collect()
        self.streams.sweep()

    def _write(self, graph: str) -> pathlib.Path:
        path = self._folder / f"model_{self._number}.onnx"
        onnx.save(parse(graph), path)
        return path


class Loaded:
    """A loaded model, and its source in ONNX Runtime.

    Attributes:
        executable: The model.
        fallbacks: The reasons for which requests were answered natively.
        losses: The arguments of ``on_loss``.
    """

    def __init__(self, executable: Executable, session: onnxruntime.InferenceSession) -> None:
        self.executable = executable
        self.fallbacks: list[str] = []
        self.losses: list[str] = []
        executable.on_fallback = self.fallbacks.append
        executable.on_loss = self.losses.append
        self._session = session

    def check(self, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        """Run, and compare the results with ONNX Runtime's."""
        results = self.executable.run(feeds)
        for value, (name, result) in zip(self._session.run(None, feeds), results.items(), strict=True):
            assert (result.dtype, result.shape) == (value.dtype, value.shape), name
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6, err_msg=name)
        return results


def profile_of(model: pathlib.Path, requests: Sequence[Mapping[str, Any]]) -> Profile:
    """Return the profile of an engine for requests: shapes of inputs that vary, elements of those with sizes."""
    profile: dict[str, ShapeRange] = {}
    for spec in (TensorSpec.of(value) for value in load_model(model).graph.inputs):
        given = [np.asarray(request[spec.name]) for request in requests if _is_array(request.get(spec.name))]
        points = [tuple(a.ravel().tolist()) if holds_sizes(spec) else a.shape for a in given]
        if points and (holds_sizes(spec) or spec.static_shape is None):
            columns = list(zip(*points, strict=True))
            low, high = tuple(map(min, columns)), tuple(map(max, columns))
            profile[spec.name] = ShapeRange(min=low, opt=points[0], max=high)
    return profile


def samples_of(request: Mapping[str, Any], folder: pathlib.Path) -> pathlib.Path | None:
    """A file with the inputs of a request; None where they are not all tensors that it can hold."""
    if not request or not all(_is_array(v) and np.asarray(v).dtype.isbuiltin == 1 for v in request.values()):
        return None
    path = folder / "samples.npz"
    np.savez(path, **request)
    return path


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype != object


def between(low: tuple[int, ...], high: tuple[int, ...]) -> ShapeRange:
    """Shapes of one input in a profile."""
    return ShapeRange(min=low, opt=high, max=high)
