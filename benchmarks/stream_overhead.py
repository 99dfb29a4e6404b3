"""Measures the host time of an execution stream per request: ``python -m benchmarks.stream_overhead``.

Stubs that do nothing replace CUDA and TensorRT. So only this project's time is measured: copies into and out of
page-locked memory, and the calls around them. The chains have one tensor of 1 x 1024 float32 between two engines.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import types
from typing import Any

import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from trtnode.bench.environment import describe_environment
from trtnode.bench.latency.interleaving import measure
from trtnode.engines.artifact.envelope import Device, Envelope
from trtnode.engines.cuda.context import CudaDevice
from trtnode.engines.cuda.programs import GpuPrograms, Interface
from trtnode.engines.cuda.streams import STREAMS, StreamPool
from trtnode.engines.tensorrt.engine import TensorRtEngine
from trtnode.engines.tensorrt.loaded_engine import LoadedEngine
from trtnode.partitioner.graph.view import TensorSpec

ONE_ENGINE_LIMIT_US, BOUNDARY_LIMIT_US = 25.0, 15.0
SHAPE = (1, 1024)
LENGTHS = (1, 2, 5, 9)
"""Numbers of engines in a chain."""


def main() -> int:
    """Measure, print, and return 1 if a limit is exceeded."""
    what = "Measures the host time of an execution stream, with stubs of CUDA and TensorRT."
    argparse.ArgumentParser(prog="python -m benchmarks.stream_overhead", description=what).parse_args()
    console = Console()
    environment = describe_environment()
    console.print(f"{environment['processor']}, {environment['cores']} cores, load {environment['load_average']}")
    feeds = {"x0": np.zeros(SHAPE, np.float32)}
    streams = StreamPool(CudaDevice(_driver()), STREAMS)
    programs = {str(length): _chain(streams, length) for length in LENGTHS}
    runs = {name: _runner(program, feeds) for name, program in programs.items()}
    times = measure(runs, rounds=40, seconds_per_round=0.05)
    medians = {name: latencies.percentile_ms(50) * 1e3 for name, latencies in times.items()}
    one, longest = medians[str(LENGTHS[0])], medians[str(LENGTHS[-1])]
    boundary = (longest - one) / (LENGTHS[-1] - LENGTHS[0])
    table = Table("engines in a row", "us", title="Host time of a request, CUDA and TensorRT replaced by stubs")
    for name, median in medians.items():
        table.add_row(name, f"{median:.1f}")
    console.print(table)
    console.print(
        f"One engine {one:.1f} us (limit {ONE_ENGINE_LIMIT_US:g}); a further boundary {boundary:.1f} us "
        f"(limit {BOUNDARY_LIMIT_US:g})"
    )
    for program in programs.values():
        program.close()
    return 0 if one <= ONE_ENGINE_LIMIT_US and boundary <= BOUNDARY_LIMIT_US else 1


def _runner(program: GpuPrograms, feeds: dict[str, np.ndarray]) -> Any:
    return lambda: program.run(feeds)


def _chain(streams: StreamPool, length: int) -> GpuPrograms:
    engine = _engine(streams)
    names = [f"x{index}" for index in range(length + 1)]
    float32 = np.dtype(np.float32)
    interface = Interface(
        stages=tuple((f"engine_{index}", True) for index in range(length)),
        inputs=(names[0],),
        outputs=(names[-1],),
        constants={},
        declared=dict.fromkeys(names, float32),
        narrowed={},
    )
    makers = [_maker(engine, one, other) for one, other in itertools.pairwise(names)]
    return GpuPrograms(streams, makers, interface)


def _maker(engine: TensorRtEngine, one: str, other: str) -> Any:
    return lambda stream: engine.on_stream(stream, (one,), (other,))


def _engine(streams: StreamPool) -> TensorRtEngine:
    trt, specs = _tensorrt(), [TensorSpec(name=name, dtype=ir.DataType.FLOAT, shape=SHAPE) for name in "xy"]
    envelope = Envelope(
        backend="tensorrt",
        backend_version="",
        platform="",
        device=Device(features="", name=""),
        precision_asked="fp32",
        precision_effective="fp32",
        options={},
        inputs=(specs[0],),
        outputs=(specs[1],),
        engine_sha256="",
        segment_sha256="",
        builder_version="",
    )
    return TensorRtEngine(LoadedEngine(trt, _no_engine(trt), envelope), streams, envelope.inputs, envelope.outputs)


def _no_engine(trt: Any) -> Any:
    """Return a stub of a TensorRT engine from x to y; its contexts enqueue nothing."""
    context = types.SimpleNamespace(
        execute_async_v3=lambda _: True,
        get_tensor_shape=lambda _: SHAPE,
        infer_shapes=list,
        set_device_memory=_nothing,
        set_input_shape=lambda *_: True,
        set_tensor_address=lambda *_: True,
    )
    return types.SimpleNamespace(
        num_io_tensors=2,
        num_optimization_profiles=1,
        create_execution_context=lambda _: context,
        get_device_memory_size_for_profile_v2=lambda _: 1024,
        get_tensor_dtype=lambda _: types.SimpleNamespace(name="FLOAT"),
        get_tensor_location=lambda _: trt.TensorLocation.DEVICE,
        get_tensor_mode=lambda name: trt.TensorIOMode.INPUT if name == "x" else trt.TensorIOMode.OUTPUT,
        get_tensor_name="xy".__getitem__,
        get_tensor_profile_shape=lambda *_: [SHAPE] * 3,
    )


def _tensorrt() -> Any:
    module = types.ModuleType("tensorrt", "A stub of TensorRT.")
    module.__dict__.update(
        __version__="0",
        ExecutionContextAllocationStrategy=types.SimpleNamespace(USER_MANAGED=2),
        ILogger=type("ILogger", (), {"Severity": types.SimpleNamespace(WARNING=2)}),
        IOutputAllocator=type("IOutputAllocator", (), {}),
        TensorIOMode=types.SimpleNamespace(INPUT="INPUT", OUTPUT="OUTPUT"),
        TensorLocation=types.SimpleNamespace(DEVICE="DEVICE", HOST="HOST"),
    )
    return module


def _nothing(*_: object) -> None:
    pass


class _Memory(int):
    """Address of device memory."""

    free = _nothing


class _Pagelocked:
    """Page-locked memory: the base of an array, which its user frees."""

    free = _nothing

    def __init__(self, size: int) -> None:
        self._memory = bytearray(size)
        address = np.frombuffer(self._memory, np.uint8).ctypes.data
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def _driver() -> Any:
    """Return a stub of ``pycuda.driver``."""
    context = types.SimpleNamespace(push=_nothing, detach=_nothing)
    return types.SimpleNamespace(
        Context=types.SimpleNamespace(pop=_nothing, synchronize=_nothing),
        Device=lambda _: types.SimpleNamespace(retain_primary_context=lambda: context),
        Error=type("Error", (Exception,), {}),
        MemoryError=type("MemoryError", (Exception,), {}),
        Stream=lambda _: types.SimpleNamespace(handle=1, synchronize=_nothing),
        init=_nothing,
        mem_alloc=lambda _: _Memory(1 << 20),
        memcpy_dtoh_async=_nothing,
        memcpy_htod_async=_nothing,
        pagelocked_empty=lambda size, _: np.asarray(_Pagelocked(size)),
    )


if __name__ == "__main__":
    sys.exit(main())
