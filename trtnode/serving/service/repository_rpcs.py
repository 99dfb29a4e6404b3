"""The RPCs about the models of the server: what there is, load one, unload one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trtnode.protos import ModelRepositoryParameter
from trtnode.serving.errors import InvalidRequestError, UnsupportedError
from trtnode.serving.models.repository import ModelRepository

Parameters = Mapping[str, ModelRepositoryParameter]

FILE = "file:"
"""The prefix of parameters that carry files."""


def repository_fields(repository: ModelRepository) -> dict[str, Callable[[Any], Mapping[str, Any]]]:
    """Return what gives the fields of the response to each of the RPCs, by its name."""

    def index(request: Any) -> Mapping[str, Any]:
        _check_repository(request.repository_name)
        known = (one for one in repository.known() if one.is_ready or not request.ready)
        models = [{"name": one.name, "version": one.version, "state": one.state, "reason": one.reason} for one in known]
        others = [] if request.ready else repository.not_loaded()
        return {"models": [*models, *({"name": name} for name in others)]}

    def load(request: Any) -> Mapping[str, Any]:
        _check_repository(request.repository_name)
        repository.load(request.model_name, *_override(request.parameters))
        return {}

    def unload(request: Any) -> Mapping[str, Any]:
        _check_repository(request.repository_name)
        for name in request.parameters:
            if name != "unload_dependents":
                raise InvalidRequestError(f"the parameter {name[:255]!r} is unknown; unload_dependents is known")
            _value(request.parameters, name, "bool_param")
        repository.unload(request.model_name)
        return {}

    return {"RepositoryIndex": index, "RepositoryModelLoad": load, "RepositoryModelUnload": unload}


def _check_repository(name: str) -> None:
    if name:
        raise UnsupportedError("this server has one repository, which has no name; leave repository_name empty")


def _override(parameters: Parameters) -> tuple[str | None, dict[str, bytes]]:
    """Return the settings and the files of a request to load a model."""
    unknown = [name for name in parameters if name != "config" and not name.startswith(FILE)]
    if unknown:
        raise InvalidRequestError(
            f"the parameter {unknown[0][:255]!r} is unknown; config and {FILE}<version>/<path> are known"
        )
    files = {name: _value(parameters, name, "bytes_param") for name in parameters if name.startswith(FILE)}
    if "config" not in parameters:
        if files:
            raise InvalidRequestError("files need the parameter 'config' beside them; '{}' changes no setting")
        return None, {}
    return _value(parameters, "config", "string_param"), files


def _value(parameters: Parameters, name: str, field: str) -> Any:
    if parameters[name].WhichOneof("parameter_choice") != field:
        raise InvalidRequestError(f"the parameter {name[:255]!r} should be a {field}")
    return getattr(parameters[name], field)
