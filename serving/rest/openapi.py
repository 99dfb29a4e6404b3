"""The OpenAPI document of the HTTP port, made of the tables that its routes are made of."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
from typing import Any

from trtnode.serving.rest.body import JSON_LENGTH
from trtnode.serving.rest.routes import INFERENCE, METHODS, PAGES, Page, RestMethod, Schema
from trtnode.serving.rest.tensors import RestRequest
from trtnode.serving.service.rpc_table import INFER_RPC
from trtnode.serving.service.status import HTTP_STATUSES

INFER_RESPONSE: Schema = {
    "type": "object",
    "required": ["model_name", "model_version", "outputs"],
    "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "id": {"type": "string"},
        "parameters": {"type": "object"},
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "shape", "datatype"],
                "properties": {
                    "name": {"type": "string"},
                    "shape": {"type": "array", "items": {"type": "integer"}},
                    "datatype": {"type": "string"},
                    "parameters": {"type": "object"},
                    "data": {"type": "array", "items": {}},
                },
            },
        },
    },
}
"""The JSON that ``RestInference`` writes."""

ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


@functools.cache
def openapi_text() -> bytes:
    """Return the document as JSON (OpenAPI 3.1.1)."""
    return json.dumps(openapi()).encode()


def openapi() -> dict[str, Any]:
    """Return the document."""
    request = RestRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        paths.setdefault(page.path, {})["get"] = _page(page)
    for method in METHODS:
        paths.setdefault(method.path, {})[method.verb.lower()] = _rpc(method)
    for path in INFERENCE:
        paths[path] = {"post": _inference(path)}
    return {
        "openapi": "3.1.1",
        "info": {"title": "trtnode", "version": importlib.metadata.version("trtnode")},
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**request.pop("$defs"), "RestRequest": request, "RestResponse": INFER_RESPONSE, "Error": ERROR},
            "responses": {"error": {"description": _error_codes(), "content": _json(_ref("schemas/Error"))}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _page(page: Page) -> dict[str, Any]:
    operation = _operation(page.path, "", page.about)
    return {**operation, "responses": {"200": {"description": page.about, "content": {page.media_type: {}}}}}


def _rpc(method: RestMethod) -> dict[str, Any]:
    operation = _operation(method.path, method.verb, f"{method.rpc} of KServe V2.")
    body = method.body_schema()
    if body is not None:
        operation["requestBody"] = {"content": _json(body)}
    return {**operation, "responses": _responses(_json(method.answer_schema()))}


def _inference(path: str) -> dict[str, Any]:
    """Describe inference: JSON, or JSON with raw tensors behind it."""
    raw: dict[str, Any] = {"application/octet-stream": {}}
    length = {"name": JSON_LENGTH, "in": "header", "description": "Bytes of JSON; raw tensors follow."}
    operation = _operation(path, "post", f"{INFER_RPC} of KServe V2.")
    return {
        **operation,
        "parameters": [*operation["parameters"], {**length, "schema": {"type": "integer"}}],
        "requestBody": {"required": True, "content": {**_json(_ref("schemas/RestRequest")), **raw}},
        "responses": _responses({**_json(_ref("schemas/RestResponse")), **raw}),
    }


def _operation(path: str, verb: str, summary: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    return {
        "operationId": "_".join(re.findall(r"\w+", f"{verb} {path}".lower())) or "root",
        "summary": summary,
        "parameters": [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in names],
    }


def _responses(content: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": "Done.", "content": content}, "default": _ref("responses/error")}


def _error_codes() -> str:
    return f"An error: {', '.join(map(str, sorted(set(HTTP_STATUSES.values()))))}."


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{name}"}
