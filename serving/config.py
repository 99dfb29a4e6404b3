"""servable.yaml: read, checked, and every fault told with its file, line and field."""

import argparse
import difflib
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping

import pydantic
from pydantic_core import ErrorDetails

from engines.errors import KeyFileError
from engines.keys import read_public_key
from engines.profiles import ShapeRange
from serving.errors import ConfigError, Problem
from serving.model_files import source_problem
from serving.model_schema import ModelConfig
from serving.pipelines import pipeline_problem
from serving.schema import ServableConfig, ServerConfig, TrustConfig
from serving.yaml_tree import Location, YamlProblemError, YamlTree, read_yaml

MAX_BYTES = 1 << 20


def load_config(path: pathlib.Path, environment: Mapping[str, str] = os.environ) -> ServableConfig:
    """Read a servable.yaml; relative paths in it become paths relative to its folder.

    Raises:
        ConfigError: The file can't be used. The error names all problems of the first stage that finds any: reading,
            structure, then what the settings ask for.
    """
    tree = _read_tree(path, environment)
    try:
        config = ServableConfig.model_validate(tree.value, context={"folder": path.absolute().parent})
    except pydantic.ValidationError as error:
        raise ConfigError(path, list(_structure_problems(error.errors(), tree))) from None
    problems = [problem_at(tree, place, text) for place, text in _setting_problems(config)]
    if problems:
        raise ConfigError(path, problems)
    return config


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


def _read_tree(path: pathlib.Path, environment: Mapping[str, str]) -> YamlTree:
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except OSError as error:
        raise ConfigError(path, [Problem(f"can't be read ({error.strerror}); check the path")]) from None
    if data is None:
        raise ConfigError(path, [Problem(f"larger than {MAX_BYTES} bytes; this is no servable.yaml")])
    try:
        tree = read_yaml(data.decode("utf-8-sig"), environment)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(path, [Problem("not UTF-8; save the file as UTF-8", line=line)]) from None
    except YamlProblemError as error:
        raise ConfigError(path, [Problem(str(error), _field(error.location), error.line)]) from None
    if not isinstance(tree.value, dict):
        found = "is empty" if tree.value is None else "is not a mapping"
        raise ConfigError(path, [Problem(f"{found}; it needs at least models: with a name and a path")])
    return tree


def _structure_problems(errors: Iterable[ErrorDetails], tree: YamlTree) -> Iterator[Problem]:
    """Yield one problem a location.

    Where no branch of a choice fits, pydantic reports them all: the deepest fault is the one to correct, and faults
    of one value are joined.
    """
    found: dict[Location, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(_place(error, tree), []).append(error)
    for place, faults in found.items():
        if not any(other != place and other[: len(place)] == place for other in found):
            texts = dict.fromkeys(structure_text(fault) for fault in faults)
            yield problem_at(tree, place, ", or ".join(texts) + _contrast(faults[0]))


def _place(error: ErrorDetails, tree: YamlTree) -> Location:
    """Return the location in the file: without the branches of a choice that pydantic names on the way."""
    place: Location = ()
    for step in error["loc"]:
        if (*place, step) in tree.lines:
            place = (*place, step)
    return (*place, error["loc"][-1]) if error["type"] == "missing" else place


def structure_text(error: ErrorDetails) -> str:
    """Say what is wrong with a value, without quoting it."""
    match error["type"]:
        case "missing":
            return "is missing; add it"
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


def _contrast(error: ErrorDetails) -> str:
    about_keys = error["type"] == "value_error" and isinstance(error["input"], dict)
    if about_keys or error["type"] in ("missing", "extra_forbidden", "too_short", "too_long"):
        return ""
    return f", not {_shown(error['input'])}"


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
        here = _definition(inner or here.get("additionalProperties") or here, definitions)
    return list(here.get("properties", {}))


def _definition(schema: dict[str, object], definitions: dict[str, dict[str, object]]) -> dict[str, object]:
    choices = schema.get("anyOf") or schema.get("oneOf")
    for choice in (schema, *(choices if isinstance(choices, list) else ())):
        reference = choice.get("$ref")
        if isinstance(reference, str):
            return definitions[reference.rpartition("/")[2]]
    return schema


def _setting_problems(config: ServableConfig) -> Iterator[tuple[Location, str]]:
    yield from _missing_files(config.server)
    yield from _shared_port(config.server)
    yield from _unusable_keys(config.trust)
    if not config.models:
        yield ("models",), "names no model; give at least one name and path"
    first_with: dict[str, int] = {}
    for index, model in enumerate(config.models):
        first = first_with.setdefault(model.name, index)
        if first != index:
            yield ("models", index, "name"), f"models[{first}] is called {model.name!r} too; rename one"
        if model.batching is not None:
            for key, text in model.batching.problems():
                yield ("models", index, "batching", key), text
        for key, text in model.tensorrt.problems():
            yield ("models", index, "tensorrt", key), text
        for place, text in _disordered_shapes(model):
            yield ("models", index, *place), text
        if model.warmup_inputs is not None and not model.warmup_inputs.is_file():
            yield ("models", index, "warmup_inputs"), _no_file(model.warmup_inputs)
        problem = source_problem(model)
        if problem is not None:
            key, text = problem
            yield ("models", index, key), text
            continue
        fault = pipeline_problem(model)
        if fault is not None:
            yield ("models", index, *fault.place), fault.problem


def _disordered_shapes(model: ModelConfig) -> Iterator[tuple[Location, str]]:
    keys = {"best": "opt", "high": "max"}
    for number, profile in enumerate(model.shapes):
        for name, one in profile.items():
            for point, text in ShapeRange(low=one.min, best=one.opt, high=one.max).problems():
                yield ("shapes", number, name, keys[point]), text


def _shared_port(server: ServerConfig) -> Iterator[tuple[Location, str]]:
    grpc, http = server.grpc, server.http
    if grpc.port == http.port != 0 and grpc.host == http.host:
        yield ("server", "http", "port"), f"server.grpc.port is {http.port} too; give each a port of its own"


def _missing_files(server: ServerConfig) -> Iterator[tuple[Location, str]]:
    tls, auth = server.grpc.tls, server.auth
    if tls is not None:
        for key, path in (("cert", tls.cert), ("key", tls.key), ("client_ca", tls.client_ca)):
            if path is not None and not path.is_file():
                yield ("server", "grpc", "tls", key), _no_file(path)
    if auth is not None and not auth.tokens_file.is_file():
        yield ("server", "auth", "tokens_file"), _no_file(auth.tokens_file)


def _unusable_keys(trust: TrustConfig) -> Iterator[tuple[Location, str]]:
    for index, path in enumerate(trust.keys):
        try:
            read_public_key(path)
        except KeyFileError as error:
            yield ("trust", "keys", index), str(error).removesuffix(".")


def _no_file(path: pathlib.Path) -> str:
    return f"there is no file {path}; correct the path"


def problem_at(tree: YamlTree, location: Location, text: str) -> Problem:
    """Return a fault with its field and line; a location that the file lacks has the line of what should hold it."""
    line = next((tree.lines[location[:n]] for n in range(len(location), -1, -1) if location[:n] in tree.lines), None)
    return Problem(text, _field(location), line)


def _field(location: Location) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
