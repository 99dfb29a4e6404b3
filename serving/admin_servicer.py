"""The RPCs about the server itself, its shared memory and its settings. The gate has checked the rights to them."""

from collections.abc import Callable
from typing import Any

from protos import (
    CudaSharedMemoryRegisterRequest,
    CudaSharedMemoryRegisterResponse,
    CudaSharedMemoryStatusRequest,
    CudaSharedMemoryStatusResponse,
    CudaSharedMemoryUnregisterRequest,
    CudaSharedMemoryUnregisterResponse,
    LogSettingsRequest,
    LogSettingsResponse,
    SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryRegisterResponse,
    SystemSharedMemoryStatusRequest,
    SystemSharedMemoryStatusResponse,
    SystemSharedMemoryUnregisterRequest,
    SystemSharedMemoryUnregisterResponse,
    TraceSettingRequest,
    TraceSettingResponse,
)
from serving.errors import InvalidRequestError, NotFoundError, UnsupportedError
from serving.log_settings import change_log_settings, log_settings
from serving.service import InferenceService

_TRACE_LEVELS = ("OFF", "TIMESTAMPS", "TENSORS")
_NO_CUDA = "this server runs no model on a GPU, so it has no CUDA shared memory; use system shared memory"


class AdminServicer:
    """RPCs of ``inference.GRPCInferenceService`` that run no model and describe none."""

    def __init__(self, service: InferenceService) -> None:
        self._service = service
        self._memory = service.shared_memory

    def methods(self) -> dict[str, Callable[[Any], Any]]:
        """Return what answers each RPC, by its name."""
        return {
            "SystemSharedMemoryStatus": self.system_status,
            "SystemSharedMemoryRegister": self.system_register,
            "SystemSharedMemoryUnregister": self.system_unregister,
            "CudaSharedMemoryStatus": self.cuda_status,
            "CudaSharedMemoryRegister": self.cuda_register,
            "CudaSharedMemoryUnregister": self.cuda_unregister,
            "TraceSetting": self.trace_setting,
            "LogSettings": self.log_settings,
        }

    def system_status(self, request: SystemSharedMemoryStatusRequest) -> SystemSharedMemoryStatusResponse:
        """Say which regions are registered."""
        status = SystemSharedMemoryStatusResponse.RegionStatus
        return SystemSharedMemoryStatusResponse(
            regions={
                region.name: status(name=region.name, key=region.key, offset=region.offset, byte_size=region.byte_size)
                for region in self._memory.regions(request.name)
            }
        )

    def system_register(self, request: SystemSharedMemoryRegisterRequest) -> SystemSharedMemoryRegisterResponse:
        """Make memory known to requests."""
        self._memory.register(request.name, request.key, request.offset, request.byte_size)
        return SystemSharedMemoryRegisterResponse()

    def system_unregister(self, request: SystemSharedMemoryUnregisterRequest) -> SystemSharedMemoryUnregisterResponse:
        """Forget memory."""
        self._memory.unregister(request.name)
        return SystemSharedMemoryUnregisterResponse()

    def cuda_status(self, request: CudaSharedMemoryStatusRequest) -> CudaSharedMemoryStatusResponse:
        """Say that there are no regions."""
        if request.name:
            raise NotFoundError(_NO_CUDA)
        return CudaSharedMemoryStatusResponse()

    def cuda_register(self, _request: CudaSharedMemoryRegisterRequest) -> CudaSharedMemoryRegisterResponse:
        """Refuse."""
        raise UnsupportedError(_NO_CUDA)

    def cuda_unregister(self, _request: CudaSharedMemoryUnregisterRequest) -> CudaSharedMemoryUnregisterResponse:
        """Do nothing: unregistering what isn't there is no error, and clients do it to clean up."""
        return CudaSharedMemoryUnregisterResponse()

    def trace_setting(self, request: TraceSettingRequest) -> TraceSettingResponse:
        """Say that nothing is traced."""
        if request.model_name:
            self._service.find_all(request.model_name, "")
        for level in request.settings["trace_level"].value if "trace_level" in request.settings else ():
            if level not in _TRACE_LEVELS:
                raise InvalidRequestError(f"there is no trace level {level[:100]!r}; use one of {_TRACE_LEVELS}")
            if level != "OFF":
                raise UnsupportedError("this server doesn't trace requests")
        off = TraceSettingResponse.SettingValue(value=["OFF"])
        return TraceSettingResponse(settings={"trace_level": off})

    def log_settings(self, request: LogSettingsRequest) -> LogSettingsResponse:
        """Change the level of the log if asked to, and say what it is."""
        if request.settings:
            change_log_settings({key: _value(setting) for key, setting in request.settings.items()})
        value = LogSettingsResponse.SettingValue
        settings = {
            key: value(bool_param=setting) if isinstance(setting, bool) else value(uint32_param=int(setting))
            for key, setting in log_settings().items()
        }
        return LogSettingsResponse(settings=settings)


def _value(setting: LogSettingsRequest.SettingValue) -> bool | int | str:
    field = setting.WhichOneof("parameter_choice")
    if field is None:
        raise InvalidRequestError("a log setting has no value")
    return getattr(setting, field)  # type: ignore[no-any-return]
