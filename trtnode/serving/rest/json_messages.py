"""Protocol messages as JSON and back: REST has the messages of gRPC, field for field."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from trtnode.protos import InferParameter, LogSettingsRequest, ModelRepositoryParameter, TraceSettingRequest
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.rest.body import check_json
from trtnode.serving.service.repository_rpcs import FILE

INT64 = range(-(2**63), 2**63)


def as_json(message: Any) -> dict[str, Any]:
    """Return a message's fields by name, defaults too. Integers of 64 bits stay numbers, which REST clients expect."""
    return {
        field.name: _json_value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request; an empty body stands for an empty one.

    Raises:
        InvalidRequestError: It is no JSON object, or has too many values.
    """
    check_json(body)
    try:
        found = json.loads(body) if body.strip() else {}
        if b"\\u" in body:
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidRequestError("the body should be a JSON object")
    return found


def fill(message: Any, fields: Mapping[str, Any]) -> Any:
    """Set fields of a message and return it.

    Raises:
        InvalidRequestError: There is no such field, or a value isn't of its type.
    """
    try:
        return ParseDict(dict(fields), message)
    except ParseError as error:
        raise InvalidRequestError(f"the body doesn't fit: {error}") from None


def infer_parameters(values: Mapping[str, bool | int | float | str | None] | None) -> dict[str, InferParameter]:
    """Return parameters of a request or tensor in the protocol's form, without those that are null.

    Raises:
        InvalidRequestError: A number is too large for it.
    """
    return {name: _infer_parameter(name, value) for name, value in (values or {}).items() if value is not None}


def repository_parameters(values: Any) -> dict[str, ModelRepositoryParameter]:
    """Return the parameters of a request to load or unload a model. Files are in base64.

    Raises:
        InvalidRequestError: They are no JSON object, or a value has no type of the protocol.
    """
    if not isinstance(values, dict):
        raise InvalidRequestError("'parameters' should be a JSON object")
    return {name: _repository_parameter(name, value) for name, value in values.items()}


def trace_settings(values: Mapping[str, Any]) -> dict[str, TraceSettingRequest.SettingValue]:
    """Return trace settings in the protocol's form: lists of text; null clears one."""
    return {name: TraceSettingRequest.SettingValue(value=_texts(value)) for name, value in values.items()}


def log_settings(values: Mapping[str, Any]) -> dict[str, LogSettingsRequest.SettingValue]:
    """Return log settings in the protocol's form.

    Raises:
        InvalidRequestError: A value has no type of the protocol.
    """
    return {name: _log_setting(name, value) for name, value in values.items()}


def _json_value(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _json_value(inner, item) for key, item in value.items()}
    if field.is_repeated:
        return [_json_item(field, item) for item in value]
    return _json_item(field, value)


def _json_item(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_json(value)
    return field.enum_type.values_by_number[value].name if field.enum_type is not None else value


def _infer_parameter(name: str, value: bool | int | float | str) -> InferParameter:
    if isinstance(value, bool):
        return InferParameter(bool_param=value)
    if isinstance(value, int) and value in INT64:
        return InferParameter(int64_param=value)
    if isinstance(value, int) and 0 < value < 2**64:
        return InferParameter(uint64_param=value)
    if isinstance(value, str):
        return InferParameter(string_param=value)
    try:
        return InferParameter(double_param=value)
    except OverflowError:
        raise InvalidRequestError(f"the parameter {name[:255]!r} is a larger number than any of 64 bits") from None


def _repository_parameter(name: str, value: Any) -> ModelRepositoryParameter:
    if isinstance(value, bool):
        return ModelRepositoryParameter(bool_param=value)
    if isinstance(value, int) and value in INT64:
        return ModelRepositoryParameter(int64_param=value)
    if not isinstance(value, str):
        raise InvalidRequestError(f"the parameter {name[:255]!r} should be text, a number or true or false")
    if not name.startswith(FILE):
        return ModelRepositoryParameter(string_param=value)
    try:
        return ModelRepositoryParameter(bytes_param=base64.b64decode(value, validate=True))
    except (ValueError, binascii.Error):
        raise InvalidRequestError(f"the parameter {name[:255]!r} should be a file in base64") from None


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [one if isinstance(one, str) else json.dumps(one) for one in values]


def _log_setting(name: str, value: Any) -> LogSettingsRequest.SettingValue:
    if isinstance(value, bool):
        return LogSettingsRequest.SettingValue(bool_param=value)
    if isinstance(value, int) and 0 <= value < 2**32:
        return LogSettingsRequest.SettingValue(uint32_param=value)
    if isinstance(value, str):
        return LogSettingsRequest.SettingValue(string_param=value)
    raise InvalidRequestError(f"the log setting {name[:255]!r} should be text, a number from 0 or true or false")
