"""JSON Schema of servable.yaml."""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import json
import sys
import textwrap
from collections.abc import Iterator

from trtnode.serving.schema.fields import Section
from trtnode.serving.schema.options import section_of
from trtnode.serving.schema.server import ServableConfig


def config_schema() -> dict[str, object]:
    """Return the JSON Schema of servable.yaml, for editors and validators."""
    schema = ServableConfig.model_json_schema()
    sections = {section.__name__: section for section in _subclasses(Section)}
    definitions = {"ServableConfig": schema, **schema["$defs"]}
    for name, section in ((name, definitions[name]) for name in sections if name in definitions):
        described: dict[str, str] = {}
        for one in reversed(sections[name].__mro__):
            if issubclass(one, Section) and one.__module__ != section_of.__module__:
                described |= _docstrings(one)
        for key, setting in section["properties"].items():
            if "$ref" in setting:  # its defaults stand in the section itself, with paths as the user would write them
                setting.pop("default", None)
            if key in described:
                setting["description"] = described[key]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "servable.yaml"}


def _subclasses(section: type[Section]) -> Iterator[type[Section]]:
    for one in section.__subclasses__():
        yield one
        yield from _subclasses(one)


def _docstrings(section: type[Section]) -> dict[str, str]:
    """Return the docstring below each field of a section. Pydantic would read them whenever a server starts."""
    (statement,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(statement, ast.ClassDef)
    found = {}
    for field, after in itertools.pairwise(statement.body):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


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
