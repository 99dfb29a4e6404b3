"""The paths of the HTTP port: those of REST V2 that stand for RPCs, with their requests and responses, and the others.

Inference is only named here: its tensors travel past the messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from trtnode.protos import (
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
from trtnode.serving.rest.json_messages import (
    as_json,
    field_schema,
    fill,
    log_settings,
    message_schema,
    read_object,
    repository_parameters,
    trace_settings,
)
from trtnode.serving.service.rpc_table import messages_of

MODEL = "/v2/models/{model}"
VERSION = MODEL + "/versions/{version}"

INFERENCE = tuple(path + "/infer" for path in (MODEL, VERSION))
"""Those of inference; they take POST."""

Names = Mapping[str, str]
"""Values of the braces in a path."""

Schema = Mapping[str, Any]
"""A JSON Schema."""


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A path that stands for no RPC, and takes GET.

    Attributes:
        path: With names in braces.
        media_type: Of its answer.
        about: The answer, in a sentence.
    """

    path: str
    media_type: str
    about: str


LIVEZ = Page("/livez", "text/plain", "200 while the process answers.")
READYZ = Page("/readyz", "text/plain", "200 if all required models can answer, else 503 with the reasons.")
METRICS = Page("/metrics", "text/plain", "The counts of all models, as Prometheus reads them.")
OPENAPI = Page("/openapi.json", "application/json", "This document.")
STATUS_PAGES = tuple(Page(path, "text/html", "The status page.") for path in ("/", "/status"))
STATUS = Page(
    "/status.json", "application/json", "What the status page shows; ?since=N leaves out slots of histories before N."
)
EXPLANATIONS = tuple(
    Page(path.removeprefix("/v2") + "/explain", "text/html", "The picture of a model's segments.")
    for path in (MODEL, VERSION)
)
PAGES = (LIVEZ, READYZ, METRICS, OPENAPI, *STATUS_PAGES, STATUS, *EXPLANATIONS)


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an RPC's response in REST.

    Attributes:
        write: The response to HTTP status and JSON.
        schema: The descriptor of the response's message to the schema of that JSON.
    """

    write: Callable[[Any], tuple[int, Any]]
    schema: Callable[[Any], Schema]


@dataclasses.dataclass(frozen=True, slots=True)
class RequestForm:
    """The form of an RPC's request in REST.

    Attributes:
        read: Names of the path and body to the request.
        fields: Those that the body has; none if it is not read.
        is_map: True if the body is the only field's map itself.
    """

    read: Callable[[Names, bytes], Any]
    fields: tuple[str, ...] = ()
    is_map: bool = False


ALL = AnswerForm(lambda response: (200, as_json(response)), message_schema)


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
    request: RequestForm
    answer: AnswerForm = ALL

    def body_schema(self) -> Schema | None:
        """Return the schema of the body; None where none is read."""
        form, message = self.request, messages_of(self.rpc)[0].DESCRIPTOR
        if not form.fields or self.verb == "GET":
            return None
        if form.is_map:
            return field_schema(message.fields_by_name[form.fields[0]])
        return message_schema(message, form.fields)

    def answer_schema(self) -> Schema:
        """Return the schema of the answer's JSON."""
        return self.answer.schema(messages_of(self.rpc)[1].DESCRIPTOR)


def _plain(message: type[Any]) -> RequestForm:
    return RequestForm(lambda _names, _body: message())


def _about_model(message: type[Any]) -> RequestForm:
    return RequestForm(lambda names, _body: message(name=names.get("model", ""), version=names.get("version", "")))


def _about_region(message: type[Any]) -> RequestForm:
    return RequestForm(lambda names, _body: message(name=names.get("region", "")))


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


_INDEX = RequestForm(_index, ("repository_name", "ready"))
_LOAD = RequestForm(_load, ("parameters",))
_UNLOAD = RequestForm(_unload, ("parameters",))
_REGISTER = RequestForm(_register, ("key", "offset", "byte_size"))
_TRACE = RequestForm(_trace, ("settings",), is_map=True)
_LOG = RequestForm(_log, ("settings",), is_map=True)


def _truth(response: Any) -> tuple[int, Any]:
    """Return 400 for no, as the protocol has it."""
    facts = as_json(response)
    return 200 if all(facts.values()) else 400, facts


def _part(field: str) -> AnswerForm:
    return AnswerForm(
        lambda response: (200, as_json(response)[field]), lambda message: field_schema(message.fields_by_name[field])
    )


def _regions(response: Any) -> tuple[int, Any]:
    return 200, list(as_json(response)["regions"].values())


def _region_list(message: Any) -> Schema:
    return {"type": "array", "items": field_schema(message.fields_by_name["regions"])["additionalProperties"]}


def _trace_values(response: Any) -> tuple[int, Any]:
    settings = {name: list(setting.value) for name, setting in response.settings.items()}
    return 200, {name: value if name == "trace_level" else value[0] for name, value in settings.items() if value}


def _log_values(response: Any) -> tuple[int, Any]:
    settings = response.settings.items()
    return 200, {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in settings}


_SETTINGS = _part("settings").schema
_TRUTH = AnswerForm(_truth, message_schema)
_REGIONS = AnswerForm(_regions, _region_list)
_NOTHING = AnswerForm(lambda _response: (200, {}), message_schema)
_TRACE_VALUES = AnswerForm(_trace_values, _SETTINGS)
_LOG_VALUES = AnswerForm(_log_values, _SETTINGS)

METHODS = (
    RestMethod("ServerMetadata", "GET", "/v2", _plain(ServerMetadataRequest)),
    RestMethod("ServerLive", "GET", "/v2/health/live", _plain(ServerLiveRequest), _TRUTH),
    RestMethod("ServerReady", "GET", "/v2/health/ready", _plain(ServerReadyRequest), _TRUTH),
    RestMethod("ModelStatistics", "GET", "/v2/models/stats", _about_model(ModelStatisticsRequest)),
    *(
        method
        for path in (MODEL, VERSION)
        for method in (
            RestMethod("ModelMetadata", "GET", path, _about_model(ModelMetadataRequest)),
            RestMethod("ModelReady", "GET", path + "/ready", _about_model(ModelReadyRequest), _TRUTH),
            RestMethod("ModelConfig", "GET", path + "/config", _about_model(ModelConfigRequest), _part("config")),
            RestMethod("ModelStatistics", "GET", path + "/stats", _about_model(ModelStatisticsRequest)),
        )
    ),
    RestMethod("RepositoryIndex", "POST", "/v2/repository/index", _INDEX, _part("models")),
    RestMethod("RepositoryModelLoad", "POST", "/v2/repository/models/{model}/load", _LOAD, _NOTHING),
    RestMethod("RepositoryModelUnload", "POST", "/v2/repository/models/{model}/unload", _UNLOAD, _NOTHING),
    *(
        method
        for kind, status, unregister in (
            ("System", SystemSharedMemoryStatusRequest, SystemSharedMemoryUnregisterRequest),
            ("Cuda", CudaSharedMemoryStatusRequest, CudaSharedMemoryUnregisterRequest),
        )
        for place in (f"/v2/{kind.lower()}sharedmemory", f"/v2/{kind.lower()}sharedmemory/region/{{region}}")
        for method in (
            RestMethod(f"{kind}SharedMemoryStatus", "GET", place + "/status", _about_region(status), _REGIONS),
            RestMethod(
                f"{kind}SharedMemoryUnregister", "POST", place + "/unregister", _about_region(unregister), _NOTHING
            ),
        )
    ),
    RestMethod(
        "SystemSharedMemoryRegister", "POST", "/v2/systemsharedmemory/region/{region}/register", _REGISTER, _NOTHING
    ),
    RestMethod(
        "CudaSharedMemoryRegister",
        "POST",
        "/v2/cudasharedmemory/region/{region}/register",
        _about_region(CudaSharedMemoryRegisterRequest),
        _NOTHING,
    ),
    *(
        RestMethod("TraceSetting", verb, place + "/trace/setting", _TRACE, _TRACE_VALUES)
        for verb in ("GET", "POST")
        for place in ("/v2", MODEL)
    ),
    *(RestMethod("LogSettings", verb, "/v2/logging", _LOG, _LOG_VALUES) for verb in ("GET", "POST")),
)
"""In the order in which paths are matched."""
