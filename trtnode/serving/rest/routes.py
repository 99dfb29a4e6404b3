"""The paths of the HTTP port: those of REST V2 that stand for RPCs, with their requests and responses, and the others.

Inference is only named here: its tensors travel past the messages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from trtnode.serving.rest.json_messages import (
    as_json,
    fill,
    log_settings,
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

LIVEZ, READYZ, METRICS = "/livez", "/readyz", "/metrics"
STATUS_PAGES = ("/", "/status")
STATUS = "/status.json"
EXPLANATIONS = tuple(path.removeprefix("/v2") + "/explain" for path in (MODEL, VERSION))

ReadsRequest = Callable[[Any, Names, bytes], Any]
"""The class of an RPC's request, names of the path, and the body to the request."""

WritesAnswer = Callable[[Any], tuple[int, Any]]
"""An RPC's response to HTTP status and JSON."""


def _all(response: Any) -> tuple[int, Any]:
    return 200, as_json(response)


@dataclasses.dataclass(frozen=True, slots=True)
class RestMethod:
    """A path that stands for an RPC.

    Attributes:
        rpc: The RPC's name.
        verb: GET or POST.
        path: With names in braces.
        request: Names of the path and body to the RPC's request.
        write: The RPC's response to HTTP status and JSON.
    """

    rpc: str
    verb: str
    path: str
    request: ReadsRequest
    write: WritesAnswer = _all

    def read(self, names: Names, body: bytes) -> Any:
        """Return the RPC's request.

        Args:
            names: Of the path.
            body: Unpacked.

        Raises:
            InvalidRequestError: The body is none of such a request.
        """
        return self.request(messages_of(self.rpc)[0], names, body)


def _change(kind: Any, names: Names, body: bytes) -> Any:
    parameters = repository_parameters(read_object(body).get("parameters", {}))
    return kind(model_name=names["model"], parameters=parameters)


def _plain(kind: Any, _names: Names, _body: bytes) -> Any:
    return kind()


def _model(kind: Any, names: Names, _body: bytes) -> Any:
    return kind(name=names.get("model", ""), version=names.get("version", ""))


def _region(kind: Any, names: Names, _body: bytes) -> Any:
    return kind(name=names.get("region", ""))


def _index(kind: Any, _names: Names, body: bytes) -> Any:
    return fill(kind(), read_object(body))


def _register(kind: Any, names: Names, body: bytes) -> Any:
    return fill(kind(), {**read_object(body), "name": names["region"]})


def _trace(kind: Any, names: Names, body: bytes) -> Any:
    return kind(model_name=names.get("model", ""), settings=trace_settings(read_object(body)))


def _log(kind: Any, _names: Names, body: bytes) -> Any:
    return kind(settings=log_settings(read_object(body)))


def _truth(response: Any) -> tuple[int, Any]:
    """Return 400 for no, as the protocol has it."""
    facts = as_json(response)
    return 200 if all(facts.values()) else 400, facts


def _part(field: str) -> WritesAnswer:
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
    RestMethod("ServerMetadata", "GET", "/v2", _plain),
    RestMethod("ServerLive", "GET", "/v2/health/live", _plain, _truth),
    RestMethod("ServerReady", "GET", "/v2/health/ready", _plain, _truth),
    RestMethod("ModelStatistics", "GET", "/v2/models/stats", _model),
    *(
        method
        for path in (MODEL, VERSION)
        for method in (
            RestMethod("ModelMetadata", "GET", path, _model),
            RestMethod("ModelReady", "GET", path + "/ready", _model, _truth),
            RestMethod("ModelConfig", "GET", path + "/config", _model, _part("config")),
            RestMethod("ModelStatistics", "GET", path + "/stats", _model),
        )
    ),
    RestMethod("RepositoryIndex", "POST", "/v2/repository/index", _index, _part("models")),
    RestMethod("RepositoryModelLoad", "POST", "/v2/repository/models/{model}/load", _change, _nothing),
    RestMethod("RepositoryModelUnload", "POST", "/v2/repository/models/{model}/unload", _change, _nothing),
    *(
        method
        for kind in ("System", "Cuda")
        for place in (f"/v2/{kind.lower()}sharedmemory", f"/v2/{kind.lower()}sharedmemory/region/{{region}}")
        for method in (
            RestMethod(f"{kind}SharedMemoryStatus", "GET", place + "/status", _region, _regions),
            RestMethod(f"{kind}SharedMemoryUnregister", "POST", place + "/unregister", _region, _nothing),
        )
    ),
    *(
        RestMethod(f"{kind}SharedMemoryRegister", "POST", f"{place}/region/{{region}}/register", form, _nothing)
        for kind, place, form in (
            ("System", "/v2/systemsharedmemory", _register),
            ("Cuda", "/v2/cudasharedmemory", _region),
        )
    ),
    *(
        RestMethod("TraceSetting", verb, place + "/trace/setting", _trace, _trace_values)
        for verb in ("GET", "POST")
        for place in ("/v2", MODEL)
    ),
    *(RestMethod("LogSettings", verb, "/v2/logging", _log, _log_values) for verb in ("GET", "POST")),
)
"""In the order in which paths are matched."""
