"""Streams, graphs and losses on a real GPU: ``make test-gpu`` there. Engines are ONNX Runtime's CUDA sessions."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from arrays import floats
from cuda_sessions import NAME, CudaSessions, streams
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.opening import open_model
from trtnode.engines.cuda import graphs
from trtnode.engines.cuda.buffers import DeviceBuffer
from trtnode.engines.cuda.context import has_driver
from trtnode.engines.cuda.devices import find_gpu
from trtnode.engines.cuda.graphs import GraphCapture
from trtnode.engines.cuda.streams import ExecutionStream
from trtnode.engines.errors import ExecutionError
from trtnode.engines.onnxruntime.cuda_session import has_cuda
from trtnode.engines.runtime.executor import Executable
from trtnode.engines.runtime.options import RunOptions
from workshop import Workshop

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_gpu() is None or not has_driver(), reason="no NVIDIA GPU or no pycuda is here"),
]
needs_provider = pytest.mark.skipif(not has_cuda(), reason="this ONNX Runtime computes on no GPU: onnxruntime-gpu does")
needs_graphs = pytest.mark.skipif(graphs.cuda_bindings is None, reason="cuda-bindings is not installed")

HYBRID = "g (float[N, 64] x) => (float[N, 64] y) { a = Relu(x) b = Softsign(a) c = Exp(b) d = Softsign(c) y = Abs(d) }"
MODELS_AFTER_WHICH_MEMORY_IS_READ = 3
LOSS = """
from cuda.bindings import nvrtc
from trtnode.engines.cuda.context import open_device
from trtnode.engines.errors import DeviceLostError
import numpy as np

device = open_device()
source = b'extern "C" __global__ void bad(int *p) { *p = 1; }'
_, program = nvrtc.nvrtcCreateProgram(source, b"bad.cu", 0, [], [])
nvrtc.nvrtcCompileProgram(program, 0, [])
ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
nvrtc.nvrtcGetPTX(program, ptx)
for attempt in range(2):
    try:
        with device:
            device.driver.module_from_buffer(ptx).get_function("bad")(np.intp(16), block=(1, 1, 1))
            device.driver.Context.synchronize()
    except DeviceLostError as error:
        print(error)
"""


@pytest.fixture
def load(
    register: Callable[[type], None], workshop: Workshop, in_process: InProcessWorker
) -> Callable[..., Executable]:
    """Compiles a model for CUDA sessions, and loads the result."""
    register(CudaSessions)

    def load(graph: str, *native_ops: str) -> Executable:
        source = workshop.write(graph)
        compiled = workshop.compile_file(
            source, engine=NAME, native_ops=native_ops, all_engines=True, worker=in_process
        )
        return open_model(compiled, run=RunOptions(trust=Trust.of((), (NAME,))))

    return load


@pytest.fixture
def stream() -> Iterator[ExecutionStream]:
    """A stream of the GPU, whose context is current."""
    pool = streams()
    stream = pool.take()
    with pool.device:
        yield stream
    pool.give_back(stream)


@needs_provider
def test_models_that_are_loaded_again_take_no_more_memory(load: Callable[..., Executable]) -> None:
    used = []
    for _ in range(3 * MODELS_AFTER_WHICH_MEMORY_IS_READ):
        executable = load(HYBRID, "Softsign")
        executable.run({"x": floats(16, 64)})
        executable.close()
        with (pool := streams()).device:
            free, total = pool.device.driver.mem_get_info()
        used.append(total - free)

    assert used[-1] <= used[MODELS_AFTER_WHICH_MEMORY_IS_READ]


@needs_graphs
def test_work_that_is_captured_is_done_again_by_its_graph(stream: ExecutionStream) -> None:
    driver, buffer, calls = stream.device.driver, DeviceBuffer(stream.device.driver), list[int]()
    address = buffer.fit(4096)

    def enqueue(handle: int) -> bool:
        calls.append(handle)
        driver.memset_d32_async(address, 7, 1024, stream.cuda_stream)
        return True

    capture = GraphCapture(stream, wanted=True)
    run, seen = capture.wrap(enqueue), np.empty(1024, np.uint32)
    for _ in range(5):
        driver.memset_d32(address, 0, 1024)
        assert run(stream.handle)
        stream.cuda_stream.synchronize()
        driver.memcpy_dtoh(seen, address)
        assert set(seen) == {7}
    capture.drop()
    buffer.free()

    assert len(calls) == 2
    assert capture.works


@needs_graphs
def test_capture_that_fails_leaves_a_stream_that_works(stream: ExecutionStream) -> None:
    capturing = False

    def enqueue(handle: int) -> bool:
        if capturing:
            stream.cuda_stream.synchronize()  # CUDA allows no such call then
        return True

    run = GraphCapture(stream, wanted=True).wrap(enqueue)
    run(stream.handle)
    capturing = True
    with pytest.raises(stream.device.driver.Error, match="capturing"):
        run(stream.handle)

    stream.cuda_stream.synchronize()


def test_full_memory_is_an_error_of_one_request() -> None:
    device = streams().device
    with pytest.raises(ExecutionError, match="memory is full"), device:
        device.driver.mem_alloc(1 << 45)

    with device:
        device.driver.mem_alloc(256).free()


@needs_graphs
def test_context_that_is_lost_stays_lost(tmp_path: pathlib.Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOSS], capture_output=True, text=True, check=False, cwd=tmp_path)

    told = done.stdout.splitlines()
    assert len(told) == 2, done.stderr
    assert all("Restart the server" in line and "illegal memory access" in line for line in told)
