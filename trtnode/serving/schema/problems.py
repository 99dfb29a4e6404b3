"""Problems of a YAML file in sentences: place, field, and what is wrong."""

from __future__ import annotations

import difflib
import json
import pathlib
from collections.abc import Mapping

from pydantic_core import ErrorDetails

from trtnode.serving.errors import ConfigError, Problem
from trtnode.serving.schema.json_schema import definition_of
from trtnode.serving.schema.server import ServableConfig
from trtnode.serving.schema.yaml_reader import Location, YamlTree


def read_text(path: pathlib.Path, most_bytes: int, kind: str) -> str:
    """Return the text of a file that a user has written.

    Raises:
        ConfigError: It can't be read, is too large to be of its kind, or isn't UTF-8. Nothing of it is quoted.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise ConfigError(path, [Problem(f"can't be read ({error.strerror}); check the path")]) from None
    if len(data) > most_bytes:
        raise ConfigError(path, [Problem(f"larger than {most_bytes} bytes; this is no {kind}")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(path, [Problem("not UTF-8; save the file as UTF-8", line=line)]) from None


def structure_text(error: ErrorDetails) -> str:
    """Return what is wrong with a value, without quoting it."""
    match error["type"]:
        case "missing":
            beside = ", or serve MODEL or --model-repository beside this file" if error["loc"] == ("models",) else ""
            return f"is missing; add it{beside}"
        case "extra_forbidden":
            return _unknown_key_text(error["loc"])
        case "model_type" | "dict_type":
            return "should be a mapping"
        case "tuple_type":
            return "should be a list"
        case "is_instance_of":
            return "should be a path"
        case "too_short" | "too_long":
            return _count_text(error["ctx"])
    return error["msg"].removeprefix("Value error, ").removeprefix("Input ")


def _count_text(bounds: Mapping[str, int]) -> str:
    least, found = bounds.get("min_length"), bounds["actual_length"]
    bound = f"most {bounds['max_length']}" if least is None else f"least {least}"
    return f"should have at {bound} values, not {found}"


def contrast(error: ErrorDetails) -> str:
    """Return the value that was found, for the end of a sentence; empty where it would not help."""
    about_keys = error["type"] == "value_error" and isinstance(error["input"], dict)
    if about_keys or error["type"] in ("missing", "extra_forbidden", "too_short", "too_long"):
        return ""
    return f", not {_shown(error['input'])}"


def problem_at(tree: YamlTree, location: Location, text: str) -> Problem:
    """Return a fault with its field and line; a location that the file lacks has the line of what should hold it."""
    line = next((tree.lines[location[:n]] for n in range(len(location), -1, -1) if location[:n] in tree.lines), None)
    return Problem(text, field_text(location), line)


def written(location: Location) -> Location:
    """Return the location of a fault as users write it: options of the compilation are keys of the model."""
    match location:
        case ("models", int(), "options", *_):
            return location[:2] + location[3:]
    return location


def field_text(location: Location) -> str:
    """Write a location as users name fields, e.g. ``models[0].path``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _unknown_key_text(location: Location) -> str:
    known = _keys_beside(location)
    nearest = difflib.get_close_matches(str(location[-1]), known, n=1)
    advice = f"did you mean {nearest[0]!r}?" if nearest else f"known here: {', '.join(known)}."
    return f"unknown key; {advice}"


def _keys_beside(location: Location) -> list[str]:
    """Return the keys that the section around ``location`` knows, by walking the schema's own definitions."""
    schema = ServableConfig.model_json_schema()
    definitions, here = schema["$defs"], schema
    for step in location[:-1]:
        inner = here.get("items") if isinstance(step, int) else here.get("properties", {}).get(step)
        here = definition_of(inner or here.get("additionalProperties") or here, definitions)
    return list(here.get("properties", {}))
