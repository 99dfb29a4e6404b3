"""Every unary RPC but ModelInfer: protocol messages to calls of the service and back, for all transports.

The ports have checked the rights to them.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trtnode.protos import (
    LogSettingsResponse,
    SystemSharedMemoryRegisterResponse,
    SystemSharedMemoryStatusResponse,
    SystemSharedMemoryUnregisterResponse,
    TraceSettingResponse,
)
from trtnode.serving.errors import InvalidRequestError, NotFoundError, UnsupportedError
from trtnode.serving.protocol.shared_memory import SharedMemory
from trtnode.serving.protocol.wire_signature import WireTensor
from trtnode.serving.security.tokens import Grant
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.service.model_messages import model_config, model_statistics
from trtnode.serving.service.repository_rpcs import repository_fields
from trtnode.serving.service.rpc_table import BROADCAST_RPCS, messages_of
from trtnode.serving.telemetry.logs import OneASecond
from trtnode.serving.telemetry.settings import change_log_settings, change_trace_settings, log_settings, trace_settings

logger = logging.getLogger(__name__)
logger.addFilter(OneASecond())

Method = Callable[[Any, Grant], Any]
"""Request message and its caller to response message."""

Fields = Mapping[str, Any]
"""The fields of a response."""

Broadcast = Callable[[str, Any, Grant], Any]
"""Answers an RPC, given its name, request and caller, for all processes that share a port."""

_NO_CUDA = "this server runs no model on a GPU, so it has no CUDA shared memory; use system shared memory"


class UnaryRpcs:
    """Answers the unary RPCs of ``inference.GRPCInferenceService`` but ModelInfer.

    Attributes:
        methods: The answer of this process to each, by name.
        shared_methods: The answer of all processes that share the port to each, by name.
        is_broadcast: Whether several processes share the port.
    """

    def __init__(self, service: InferenceService, broadcast: Broadcast | None = None) -> None:
        """Answer for a service.

        Args:
            service: Answers.
            broadcast: Where several processes share the port, answers ``BROADCAST_RPCS`` for all of them.
        """
        self._service = service
        self.is_broadcast = broadcast is not None
        fields: Mapping[str, Callable[[Any], Fields]] = {
            "ServerLive": lambda _request: {"live": True},
            "ServerReady": lambda _request: {"ready": service.ready()},
            "ServerMetadata": self._server_metadata,
            "ModelReady": lambda request: {"ready": service.model_ready(request.name, request.version)},
            "ModelMetadata": self._model_metadata,
            "ModelConfig": lambda request: {"config": model_config(service.find(request.name, request.version))},
            "ModelStatistics": self._model_statistics,
            "CudaSharedMemoryStatus": _cuda_status,
            "CudaSharedMemoryRegister": _register_cuda,
            "CudaSharedMemoryUnregister": lambda _request: {},  # clients do it to clean up, so it is no error
            "TraceSetting": self._trace_settings,
            "LogSettings": change_log,
            **repository_fields(service.repository),
        }
        self.methods: Mapping[str, Method] = {
            **{rpc: functools.partial(_answer, answer, messages_of(rpc)[1]) for rpc, answer in fields.items()},
            "SystemSharedMemoryStatus": self._memory_status,
            "SystemSharedMemoryRegister": self._register_memory,
            "SystemSharedMemoryUnregister": self._unregister_memory,
        }
        self.shared_methods: Mapping[str, Method] = self.methods
        if broadcast is not None:
            self.shared_methods = {
                **self.methods,
                **{rpc: functools.partial(broadcast, rpc) for rpc in BROADCAST_RPCS},
            }

    def _server_metadata(self, _request: Any) -> Fields:
        service = self._service
        return {"name": service.name, "version": service.version, "extensions": service.extensions}

    def _model_metadata(self, request: Any) -> Fields:
        """Return what clients learn about a model. Inputs with a default are accepted, but not listed."""
        servable = self._service.find(request.name, request.version)
        outputs = servable.signature.outputs
        versions = self._service.repository.model(request.name).versions.values()
        return {
            "name": request.name,
            "versions": [one.version for one in versions if one.is_ready],
            "platform": servable.platform,
            "inputs": _tensor_metadata(servable.required_inputs()),
            "outputs": _tensor_metadata(outputs),
        }

    def _model_statistics(self, request: Any) -> Fields:
        return {"model_stats": map(model_statistics, self._service.counts_of(request.name, request.version))}

    def _memory_status(self, request: Any, caller: Grant) -> Any:
        entry, regions = SystemSharedMemoryStatusResponse.RegionStatus, self._memory_of(caller).regions(request.name)
        return SystemSharedMemoryStatusResponse(
            regions={
                one.name: entry(name=one.name, key=one.key, offset=one.offset, byte_size=one.byte_size)
                for one in regions
            }
        )

    def _register_memory(self, request: Any, caller: Grant) -> Any:
        place = request.byte_size, request.offset, request.key
        self._memory_of(caller).register(request.name, request.key, request.offset, request.byte_size)
        logger.info("Registered shared memory %r: %d bytes from %d on of object %r", request.name, *place)
        return SystemSharedMemoryRegisterResponse()

    def _unregister_memory(self, request: Any, caller: Grant) -> Any:
        self._memory_of(caller).unregister(request.name)
        return SystemSharedMemoryUnregisterResponse()

    def _memory_of(self, caller: Grant) -> SharedMemory:
        return self._service.shared_memory.of(caller.memory_owner)

    def _trace_settings(self, request: Any) -> Fields:
        wanted = {key: list(setting.value) for key, setting in request.settings.items()}
        if request.model_name:
            self._service.counts_of(request.model_name, "")
        change_trace_settings(self._service.tracing, request.model_name, wanted)
        value, settings = TraceSettingResponse.SettingValue, trace_settings(self._service.tracing)
        return {"settings": {key: value(value=values) for key, values in settings.items()}}


def change_log(request: Any) -> Fields:
    """Change what the process logs, and say what is in effect.

    Raises:
        InvalidRequestError: A value is of another type, or the switches contradict each other.
        UnsupportedError: The request changes the file or the format of the log.
    """
    if request.settings:
        change_log_settings({key: _value(setting) for key, setting in request.settings.items()})
    return {"settings": {key: _setting(value) for key, value in log_settings().items()}}


def _answer(answer: Callable[[Any], Fields], response: Any, request: Any, _caller: Grant) -> Any:
    return response(**answer(request))


def _tensor_metadata(tensors: Iterable[WireTensor]) -> list[Fields]:
    return [
        {
            "name": tensor.name,
            "datatype": tensor.datatype.name,
            "shape": (-1,) if tensor.shape is None else tensor.shape,
        }
        for tensor in tensors
    ]


def _cuda_status(request: Any) -> Fields:
    if request.name:
        raise NotFoundError(_NO_CUDA)
    return {}


def _register_cuda(_request: Any) -> Fields:
    raise UnsupportedError(_NO_CUDA)


def _setting(value: bool | int | str) -> LogSettingsResponse.SettingValue:
    if isinstance(value, bool):
        return LogSettingsResponse.SettingValue(bool_param=value)
    if isinstance(value, int):
        return LogSettingsResponse.SettingValue(uint32_param=value)
    return LogSettingsResponse.SettingValue(string_param=value)


def _value(setting: Any) -> bool | int | str:
    field = setting.WhichOneof("parameter_choice")
    if field is None:
        raise InvalidRequestError("a log setting has no value")
    return getattr(setting, field)  # type: ignore[no-any-return]
