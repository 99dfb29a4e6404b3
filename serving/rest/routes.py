"""The paths of the HTTP port: those of REST V2 that stand for RPCs, with their requests and responses, and the others.

Inference is only named here: its tensors travel past the messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

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
        read: The class of the request, names of the path, and the body to the request.
        fields: Those that the body has; none if it is not read.
        is_map: True if the body is the only field's map itself.
    """

    read: Callable[[Any, Names, bytes], Any]
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

    def read(self, names: Names, body: bytes) -> Any:
        """Return the RPC's request.

        Args:
            names: Of the path.
            body: Unpacked.

        Raises:
            InvalidRequestError: The body is none of such a request.
        """
        return self.request.read(messages_of(self.rpc)[0], names, body)

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


def _change(kind: Any, names: Names, body: bytes) -> Any:
    parameters = repository_parameters(read_object(body).get("parameters", {}))
    return kind(model_name=names["model"], parameters=parameters)


_PLAIN = RequestForm(lambda kind, _names, _body: kind())
_MODEL = RequestForm(lambda kind, names, _body: kind(name=names.get("model", ""), version=names.get("version", "")))
_REGION = RequestForm(lambda kind, names, _body: kind(name=names.get("region", "")))
_INDEX = RequestForm(lambda kind, _names, body: fill(kind(), read_object(body)), ("repository_name", "ready"))
_CHANGE = RequestForm(_change, ("parameters",))
_REGISTER = RequestForm(
    lambda kind, names, body: fill(kind(), {**read_object(body), "name": names["region"]}),
    ("key", "offset", "byte_size"),
)
_TRACE = RequestForm(
    lambda kind, names, body: kind(model_name=names.get("model", ""), settings=trace_settings(read_object(body))),
    ("settings",),
    is_map=True,
)
_LOG = RequestForm(
    lambda kind, _names, body: kind(settings=log_settings(read_object(body))), ("settings",), is_map=True
)


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
    RestMethod("ServerMetadata", "GET", "/v2", _PLAIN),
    RestMethod("ServerLive", "GET", "/v2/health/live", _PLAIN, _TRUTH),
    RestMethod("ServerReady", "GET", "/v2/health/ready", _PLAIN, _TRUTH),
    RestMethod("ModelStatistics", "GET", "/v2/models/stats", _MODEL),
    *(
        method
        for path in (MODEL, VERSION)
        for method in (
            RestMethod("ModelMetadata", "GET", path, _MODEL),
            RestMethod("ModelReady", "GET", path + "/ready", _MODEL, _TRUTH),
            RestMethod("ModelConfig", "GET", path + "/config", _MODEL, _part("config")),
            RestMethod("ModelStatistics", "GET", path + "/stats", _MODEL),
        )
    ),
    RestMethod("RepositoryIndex", "POST", "/v2/repository/index", _INDEX, _part("models")),
    RestMethod("RepositoryModelLoad", "POST", "/v2/repository/models/{model}/load", _CHANGE, _NOTHING),
    RestMethod("RepositoryModelUnload", "POST", "/v2/repository/models/{model}/unload", _CHANGE, _NOTHING),
    *(
        method
        for kind in ("System", "Cuda")
        for place in (f"/v2/{kind.lower()}sharedmemory", f"/v2/{kind.lower()}sharedmemory/region/{{region}}")
        for method in (
            RestMethod(f"{kind}SharedMemoryStatus", "GET", place + "/status", _REGION, _REGIONS),
            RestMethod(f"{kind}SharedMemoryUnregister", "POST", place + "/unregister", _REGION, _NOTHING),
        )
    ),
    *(
        RestMethod(f"{kind}SharedMemoryRegister", "POST", f"{place}/region/{{region}}/register", form, _NOTHING)
        for kind, place, form in (
            ("System", "/v2/systemsharedmemory", _REGISTER),
            ("Cuda", "/v2/cudasharedmemory", _REGION),
        )
    ),
    *(
        RestMethod("TraceSetting", verb, place + "/trace/setting", _TRACE, _TRACE_VALUES)
        for verb in ("GET", "POST")
        for place in ("/v2", MODEL)
    ),
    *(RestMethod("LogSettings", verb, "/v2/logging", _LOG, _LOG_VALUES) for verb in ("GET", "POST")),
)
"""In the order in which paths are matched."""
