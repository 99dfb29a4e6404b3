"""ONNX Runtime's CUDA provider on a simulated GPU: it computes on the host, and its results come late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest

from simulated_cuda import SimulatedGpu

PROVIDER = "CUDAExecutionProvider"


class Provider:
    """Sessions on one GPU.

    Attributes:
        sessions: Those that were opened.
        shift: Bytes by which the addresses of results miss their alignment.
        refuses: Message with which sessions can't be opened; empty where they can.
        fails: Message of the next run, which fails; empty for none.
    """

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self.sessions: list[Session] = []
        self.shift = 0
        self.refuses = ""
        self.fails = ""


def install(monkeypatch: pytest.MonkeyPatch, gpu: SimulatedGpu) -> Provider:
    """Let this process have a CUDA provider, until the test ends."""
    provider, real = Provider(gpu), onnxruntime.InferenceSession

    def open_session(model: Any, options: Any = None, providers: Sequence[Any] = (), **rest: Any) -> Any:
        if not providers or providers[0] == "CPUExecutionProvider":
            return real(model, options, providers=providers or None, **rest)
        if provider.refuses:
            raise RuntimeError(provider.refuses)
        provider.sessions.append(Session(provider, real(model, options, providers=["CPUExecutionProvider"]), providers))
        return provider.sessions[-1]

    monkeypatch.setattr("trtnode.engines.onnxruntime.library.onnxruntime.InferenceSession", open_session)
    monkeypatch.setattr("trtnode.engines.runtime.gpu_plan.has_cuda", lambda: True)
    return provider


class Session:
    """A session on the GPU.

    Attributes:
        providers: As asked for.
        falls_back: True if it would hide a failure by computing elsewhere.
    """

    def __init__(self, provider: Provider, session: Any, providers: Sequence[Any]) -> None:
        self.providers = providers
        self.falls_back = True
        self._provider = provider
        self._session = session
        self._stream = int(providers[0][1]["user_compute_stream"])

    def get_providers(self) -> list[str]:
        return [PROVIDER, "CPUExecutionProvider"]

    def disable_fallback(self) -> None:
        self.falls_back = False

    def io_binding(self) -> Binding:
        return Binding()

    def run_with_iobinding(self, binding: Binding, run_options: Any) -> None:
        """Read inputs when the stream is there; results are written later."""
        provider = self._provider
        assert run_options.get_run_config_entry("disable_synchronize_execution_providers") == "1"
        if provider.fails:
            message, provider.fails = provider.fails, ""
            raise RuntimeError(message)
        stream = provider.gpu.stream(self._stream)
        stream.finish()
        feeds = {name: self._input(*bound) for name, bound in binding.inputs.items()}
        binding.results = []
        names = list(binding.outputs)  # in the order in which they were bound first
        for name, result in zip(names, self._session.run(names, feeds), strict=True):
            value = Value(provider, result, *binding.outputs[name])
            binding.results.append(value)
            if value.address:
                stream.add(value.write)

    def _input(self, device: str, dtype: Any, shape: tuple[int, ...], place: Any) -> np.ndarray:
        if device == "cpu":
            return np.array(place)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._provider.gpu.view(place, size).copy().view(dtype).reshape(shape)


class Binding:
    def __init__(self) -> None:
        self.inputs: dict[str, tuple[str, Any, Any, Any]] = {}
        self.outputs: dict[str, tuple[str, Any, int]] = {}
        self.results: list[Value] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        self.inputs[name] = ("cpu", None, None, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int
    ) -> None:
        assert device_id == 0
        self.inputs[name] = (device_type, element_type, tuple(shape), buffer_ptr)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int = 0,
    ) -> None:
        assert device_id == 0
        self.outputs[name] = (device_type, shape, buffer_ptr)

    def get_outputs(self) -> list[Value]:
        return self.results


class Value:
    """An ``OrtValue``: a result in bound memory, in memory of its own on the GPU, or on the host."""

    def __init__(self, provider: Provider, result: np.ndarray, device: str, shape: Any, address: int) -> None:
        assert shape is None or tuple(shape) == result.shape
        self._gpu = provider.gpu
        self._result = result
        self._block: Any = None
        self.address = address
        if device == "cuda" and not address:
            self._block = provider.gpu.allocate(max(result.nbytes, 1) + provider.shift)
            self.address = self._block.address + provider.shift

    def __del__(self) -> None:
        if self._block is not None:
            self._gpu.memory.free(self._block)

    def write(self) -> None:
        """Do what the stream has been asked for."""
        if self._result.nbytes:
            self._gpu.view(self.address, self._result.nbytes)[:] = self._result.reshape(-1).view(np.uint8)

    def data_ptr(self) -> int:
        return self.address

    def shape(self) -> list[int]:
        return list(self._result.shape)

    def tensor_size_in_bytes(self) -> int:
        return self._result.nbytes

    def numpy(self) -> np.ndarray:
        assert not self.address
        return self._result
