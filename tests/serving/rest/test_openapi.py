"""The OpenAPI document: a whole one, with every route of the port, whose answers fit its schemas."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.conftest import Running, Starter
from tests.serving.rest.conftest import call, request
from trtnode.serving.config.load import load_config
from trtnode.serving.models.loader import engine_loader
from trtnode.serving.rest.app import HttpApp
from trtnode.serving.rest.openapi import openapi
from trtnode.serving.service.host import ModelHost

CONFIG = pathlib.Path(__file__).parents[3] / "configs" / "digits.yaml"
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
NAMES = {"model": "two", "version": "1", "region": "r"}
BODIES = {"/infer": request(), "/register": b'{"key": "/none", "byte_size": 1}'}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for verb, operation in methods.items():
            yield path, verb.upper(), operation


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from [part["$ref"]] if "$ref" in part else []
        part = list(part.values())
    for one in part if isinstance(part, list) else []:
        yield from references(one)


def resolve(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        found: Any = document
        for name in part["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        part = found
    return part


def fits(document: dict[str, Any], schema: dict[str, Any], value: Any) -> bool:
    schema = resolve(document, schema)
    if not schema:
        return True
    if "anyOf" in schema:
        return any(fits(document, one, value) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    types = schema.get("type", list(TYPES))
    if not any(isinstance(value, TYPES[one]) for one in ([types] if isinstance(types, str) else types)):
        return False
    if isinstance(value, list):
        return all(fits(document, schema.get("items", {}), one) for one in value)
    if not isinstance(value, dict):
        return True
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    return set(schema.get("required", ())) <= value.keys() and all(
        fits(document, known[key], item) if key in known else others is not None and fits(document, others, item)
        for key, item in value.items()
    )


@pytest.fixture(scope="module")
def served(shared: Running) -> dict[str, Any]:
    status, headers, body = call(shared, "/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.fixture
def everything(start: Starter, models: pathlib.Path) -> Running:
    """A server that allows every RPC."""
    return start(
        f"- {{name: two, path: {models}/two.onnx, engine: native}}\n",
        server="admin: {repository: true, shared_memory: true, settings: true}",
    )


def test_the_document_keeps_the_rules_of_openapi(served: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(served)]

    assert served["openapi"].startswith("3.1.")
    assert served["info"].keys() >= {"title", "version"}
    assert len(set(ids)) == len(ids)
    assert {resolve(served, {"$ref": one}) is not None for one in references(served)} == {True}
    for path, _, operation in operations(served):
        declared = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert path.startswith("/")
        assert declared == set(re.findall(r"{(\w+)}", path))
        assert all(resolve(served, one)["description"] for one in operation["responses"].values())


def test_it_has_every_route_of_the_port_and_no_other(served: dict[str, Any]) -> None:
    config = load_config(CONFIG)
    host = ModelHost(config, engine_loader(config))
    routes = HttpApp(config, host, list).routes()
    host.close(drained=True)

    mounted = {(route.path, verb) for route in routes for verb in (route.methods or ()) if verb != "HEAD"}

    assert mounted == {(path, verb) for path, verb, _ in operations(served)}


def test_every_route_answers_as_the_document_says(everything: Running) -> None:
    document = openapi()
    last = ("/unload", "/load")  # which change what the others are about

    for path, verb, operation in sorted(operations(document), key=lambda one: one[0].endswith(last)):
        body = next((text for end, text in BODIES.items() if path.endswith(end)), b"{}") if verb == "POST" else None
        status, headers, text = call(everything, path.format(**NAMES), body)
        answer = resolve(document, operation["responses"].get(str(status), operation["responses"].get("default", {})))
        media_type = headers["content-type"].partition(";")[0]
        assert media_type in answer["content"], (path, status, text[:200])
        assert status == 200 or "error" in json.loads(text), (path, status, text[:200])
        if media_type == "application/json":
            schema = answer["content"][media_type].get("schema", {})
            assert fits(document, schema, json.loads(text)), (path, text[:500])
