"""JSON Schema of servable.yaml."""

from __future__ import annotations

import argparse
import json
import sys

from serving.schema.server import ServableConfig


def config_schema() -> dict[str, object]:
    """Return the JSON Schema of servable.yaml, for editors and validators."""
    schema = ServableConfig.model_json_schema()
    for section in (schema, *schema["$defs"].values()):
        for setting in section["properties"].values():
            if "$ref" in setting:  # its defaults stand in the section itself, with paths as the user would write them
                setting.pop("default", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "servable.yaml"}


def print_schema(_arguments: argparse.Namespace) -> int:
    """Print the JSON Schema on stdout; return the exit code."""
    sys.stdout.write(json.dumps(config_schema(), indent=2) + "\n")
    return 0


def definition_of(schema: dict[str, object], definitions: dict[str, dict[str, object]]) -> dict[str, object]:
    """Follow a reference of the schema to what it stands for."""
    choices = schema.get("anyOf") or schema.get("oneOf")
    for choice in (schema, *(choices if isinstance(choices, list) else ())):
        reference = choice.get("$ref")
        if isinstance(reference, str):
            return definitions[reference.rpartition("/")[2]]
    return schema
