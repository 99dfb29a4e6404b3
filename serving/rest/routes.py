"""The paths of REST V2 that stand for RPCs, with their requests and responses.

Only inference isn't here: its tensors travel past the messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from protos import (
    CudaSharedMemoryRegisterRequest,
    CudaSharedMemoryStatusRequest,
    CudaSharedMemoryUnregisterRequest,
    LogSettingsRequest,
    ModelConfigRequest,
    ModelMetadataRequest,
    ModelReadyRequest,
    ModelStatisticsRequest,
    RepositoryIndexRequest,
    RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest,
    ServerLiveRequest,
    ServerMetadataRequest,
    ServerReadyRequest,
    SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryStatusRequest,
    SystemSharedMemoryUnregisterRequest,
    TraceSettingRequest,
)
from serving.rest.json_messages import as_json, fill, log_settings, read_object, repository_parameters, trace_settings

MODEL = "/v2/models/{model}"
VERSION = MODEL + "/versions/{version}"

Names = Mapping[str, str]
"""Values of the braces in a path."""


@dataclasses.dataclass(frozen=True, slots=True)
class RestMethod:
    """A path that stands for an RPC.

    Attributes:
        rpc: The RPC's name.
        verb: GET or POST.
        path: With names in braces.
        request: Names of the path and body to the RPC's request.
        answer: The RPC's response to HTTP status and JSON.
    """

    rpc: str
    verb: str
    path: str
    request: Callable[[Names, bytes], Any]
    answer: Callable[[Any], tuple[int, Any]] = lambda response: (200, as_json(response))


def _plain(message: type[Any]) -> Callable[[Names, bytes], Any]:
    return lambda _names, _body: message()


def _about_model(message: type[Any]) -> Callable[[Names, bytes], Any]:
    return lambda names, _body: message(name=names.get("model", ""), version=names.get("version", ""))


def _about_region(message: type[Any]) -> Callable[[Names, bytes], Any]:
    return lambda names, _body: message(name=names.get("region", ""))


def _index(_names: Names, body: bytes) -> Any:
    return fill(RepositoryIndexRequest(), read_object(body))


def _load(names: Names, body: bytes) -> Any:
    parameters = repository_parameters(read_object(body).get("parameters", {}))
    return RepositoryModelLoadRequest(model_name=names["model"], parameters=parameters)


def _unload(names: Names, body: bytes) -> Any:
    parameters = repository_parameters(read_object(body).get("parameters", {}))
    return RepositoryModelUnloadRequest(model_name=names["model"], parameters=parameters)


def _register(names: Names, body: bytes) -> Any:
    return fill(SystemSharedMemoryRegisterRequest(), {**read_object(body), "name": names["region"]})


def _trace(names: Names, body: bytes) -> Any:
    return TraceSettingRequest(model_name=names.get("model", ""), settings=trace_settings(read_object(body)))


def _log(_names: Names, body: bytes) -> Any:
    return LogSettingsRequest(settings=log_settings(read_object(body)))


def _truth(response: Any) -> tuple[int, Any]:
    """Return 400 for no, as the protocol has it."""
    facts = as_json(response)
    return 200 if all(facts.values()) else 400, facts


def _part(field: str) -> Callable[[Any], tuple[int, Any]]:
    return lambda response: (200, as_json(response)[field])


def _regions(response: Any) -> tuple[int, Any]:
    return 200, list(as_json(response)["regions"].values())


def _nothing(_response: Any) -> tuple[int, Any]:
    return 200, {}


def _trace_values(response: Any) -> tuple[int, Any]:
    settings = {name: list(setting.value) for name, setting in response.settings.items()}
    return 200, {name: value if name == "trace_level" else value[0] for name, value in settings.items() if value}


def _log_values(response: Any) -> tuple[int, Any]:
    settings = response.settings.items()
    return 200, {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in settings}


METHODS = (
    RestMethod("ServerMetadata", "GET", "/v2", _plain(ServerMetadataRequest)),
    RestMethod("ServerLive", "GET", "/v2/health/live", _plain(ServerLiveRequest), _truth),
    RestMethod("ServerReady", "GET", "/v2/health/ready", _plain(ServerReadyRequest), _truth),
    RestMethod("ModelStatistics", "GET", "/v2/models/stats", _about_model(ModelStatisticsRequest)),
    *(
        method
        for path in (MODEL, VERSION)
        for method in (
            RestMethod("ModelMetadata", "GET", path, _about_model(ModelMetadataRequest)),
            RestMethod("ModelReady", "GET", path + "/ready", _about_model(ModelReadyRequest), _truth),
            RestMethod("ModelConfig", "GET", path + "/config", _about_model(ModelConfigRequest), _part("config")),
            RestMethod("ModelStatistics", "GET", path + "/stats", _about_model(ModelStatisticsRequest)),
        )
    ),
    RestMethod("RepositoryIndex", "POST", "/v2/repository/index", _index, _part("models")),
    RestMethod("RepositoryModelLoad", "POST", "/v2/repository/models/{model}/load", _load, _nothing),
    RestMethod("RepositoryModelUnload", "POST", "/v2/repository/models/{model}/unload", _unload, _nothing),
    *(
        method
        for kind, status, unregister in (
            ("System", SystemSharedMemoryStatusRequest, SystemSharedMemoryUnregisterRequest),
            ("Cuda", CudaSharedMemoryStatusRequest, CudaSharedMemoryUnregisterRequest),
        )
        for place in (f"/v2/{kind.lower()}sharedmemory", f"/v2/{kind.lower()}sharedmemory/region/{{region}}")
        for method in (
            RestMethod(f"{kind}SharedMemoryStatus", "GET", place + "/status", _about_region(status), _regions),
            RestMethod(
                f"{kind}SharedMemoryUnregister", "POST", place + "/unregister", _about_region(unregister), _nothing
            ),
        )
    ),
    RestMethod(
        "SystemSharedMemoryRegister", "POST", "/v2/systemsharedmemory/region/{region}/register", _register, _nothing
    ),
    RestMethod(
        "CudaSharedMemoryRegister",
        "POST",
        "/v2/cudasharedmemory/region/{region}/register",
        _about_region(CudaSharedMemoryRegisterRequest),
        _nothing,
    ),
    *(
        RestMethod("TraceSetting", verb, place + "/trace/setting", _trace, _trace_values)
        for verb in ("GET", "POST")
        for place in ("/v2", MODEL)
    ),
    *(RestMethod("LogSettings", verb, "/v2/logging", _log, _log_values) for verb in ("GET", "POST")),
)
"""In the order in which paths are matched."""
