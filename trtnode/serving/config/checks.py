"""Checks of a whole servable.yaml, beyond the types of single fields."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterator

from trtnode.engines.artifact.keys import read_public_key
from trtnode.engines.errors import KeyFileError
from trtnode.partitioner.options import option_problems
from trtnode.serving.models.pipelines import is_graph, pipeline_problem, tiles_of
from trtnode.serving.models.version_files import file_of_step, find_files, source_problem
from trtnode.serving.schema.model import LengthsConfig, ModelConfig
from trtnode.serving.schema.server import ServableConfig, ServerConfig, TrustConfig
from trtnode.serving.schema.yaml_reader import Location


def setting_problems(config: ServableConfig) -> Iterator[tuple[Location, str]]:
    """Yield the place and text of each setting that does not fit the others, the files or the machine."""
    yield from _missing_files(config.server)
    yield from _shared_port(config.server)
    yield from _unusable_keys(config.trust)
    first_with: dict[str, int] = {}
    names = {model.name for model in config.models}
    for index, model in enumerate(config.models):
        first = first_with.setdefault(model.name, index)
        if first != index:
            yield ("models", index, "name"), f"models[{first}] is called {model.name!r} too; rename one"
        if model.batching is not None:
            for key, text in model.batching.problems():
                yield ("models", index, "batching", key), text
            is_folder = any(one.file for one in find_files(model).values())  # of a model of text, which has lengths
            if model.batching.max_batch_tokens is not None and model.lengths is None and not is_folder:
                text = "has no effect without lengths; add `lengths: auto` to the model, or leave it out"
                yield ("models", index, "batching", "max_batch_tokens"), text
        if isinstance(model.lengths, LengthsConfig):
            for key, text in model.lengths.problems():
                yield ("models", index, "lengths", key), text
        for place, text in model.variant_problems():
            yield ("models", index, *place), text
        for place, text in ensemble_problems(model, names):
            yield ("models", index, *place), text
        for place, text in option_problems(model.options):
            yield ("models", index, *place), text
        for place, text in _state_problems(model, config.server.grpc.workers):
            yield ("models", index, *place), text
        if model.warmup_inputs is not None and not _is_file(model.warmup_inputs):
            yield ("models", index, "warmup_inputs"), _no_file(model.warmup_inputs)
        problem = source_problem(model)
        if problem is not None:
            place, text = problem
            yield ("models", index, *place), text
            continue
        for key, text in model.text.problems() if model.text is not None else ():
            yield ("models", index, "text", key), text
        fault = pipeline_problem(model) if find_files(model) else None
        if fault is not None:
            yield ("models", index, *fault.place), fault.problem


def _state_problems(model: ModelConfig, workers: int) -> Iterator[tuple[Location, str]]:
    """Yield the place and the fault of each setting that a model with state can't have."""
    if model.state is None:
        return
    if workers > 1:
        yield ("state",), f"is kept in one process, and server.grpc.workers is {workers}; set that to 1"
    if model.lengths is not None:
        yield ("lengths",), "would pad what state is made of; leave it out for a model with state"
    if tiles_of(model) is not None:
        yield ("state",), "is nothing that a model of tiles has; leave one of them out"
    for index, pair in enumerate(model.state if model.state != "auto" else ()):
        if isinstance(pair.initial, pathlib.Path) and not _is_file(pair.initial):
            yield ("state", index, "initial"), _no_file(pair.initial)


def ensemble_problems(model: ModelConfig, names: Collection[str]) -> Iterator[tuple[Location, str]]:
    """Yield the place and the fault of each key of an ensemble that can't be followed."""
    for key in ("variants", "preprocess", "postprocess"):
        if model.ensemble and getattr(model, key):
            yield (key,), "is nothing that an ensemble has; give it to one of its models, or leave it out"
    for index, step in enumerate(model.ensemble):
        place, member, file = ("ensemble", index), step.member, file_of_step(step)
        if member is None:
            missing = f"there is no model {step.model!r} here; add it, or correct the name"
            circular = f"{step.model!r} is, or contains, an ensemble that contains itself; take it out"
            yield (*place, "model"), circular if step.model in names else missing
        elif not is_graph(member) or (file is not None and file.file is not None):
            text = (
                f"{step.model!r} is more than a graph: variants, state, tiles, a decoder, texts; name one without them"
            )
            yield (*place, "model"), text
        elif file is None and model.required:
            known = ", ".join(map(str, find_files(member))) or "none"
            yield (*place, "version"), f"{step.model!r} has no such version to serve; it has {known}"


def _shared_port(server: ServerConfig) -> Iterator[tuple[Location, str]]:
    grpc, http = server.grpc, server.http
    if grpc.port == http.port != 0 and grpc.host == http.host:
        yield ("server", "http", "port"), f"server.grpc.port is {http.port} too; give each a port of its own"


def _missing_files(server: ServerConfig) -> Iterator[tuple[Location, str]]:
    auth = server.auth
    for section, tls in (("grpc", server.grpc.tls), ("http", server.http.tls)):
        for key, path in tls or ():
            if path is not None and not _is_file(path):
                yield ("server", section, "tls", key), _no_file(path)
    if auth is not None and not _is_file(auth.tokens_file):
        yield ("server", "auth", "tokens_file"), _no_file(auth.tokens_file)


def _unusable_keys(trust: TrustConfig) -> Iterator[tuple[Location, str]]:
    for index, path in enumerate(trust.keys):
        try:
            read_public_key(path)
        except KeyFileError as error:
            yield ("trust", "keys", index), str(error).removesuffix(".")


def _is_file(path: pathlib.Path) -> bool:
    """Return whether there is a file that this user can see."""
    try:
        return path.is_file()
    except OSError:
        return False


def _no_file(path: pathlib.Path) -> str:
    return f"there is no file {path}; correct the path"


def scaling_problems(config: ServableConfig) -> Iterator[tuple[Location, str]]:
    """Yield the place and text of each setting that only a cluster knows, for a server on one machine."""
    for index, model in enumerate(config.models):
        if model.scaling is not None:
            yield ("models", index, "scaling"), "is about a Ray cluster; serve with --on ray, or leave it out"


def cluster_problems(config: ServableConfig) -> Iterator[tuple[Location, str]]:
    """Yield the place and text of each setting that a Ray cluster can't follow."""
    yield from _process_settings(config.server)
    for index, model in enumerate(config.models):
        if model.state is not None:
            yield ("models", index, "state"), "is kept in one process, and Ray runs several; serve it without --on ray"
        if model.scaling is not None:
            for key, text in model.scaling.problems():
                yield ("models", index, "scaling", key), text


LIMITS_OF_PORTS = {
    *("connection_requests", "http_connections", "http_header_bytes", "http_header_timeout_s", "shared_memory_mb"),
}
"""Limits that nothing on a cluster keeps."""


def _process_settings(server: ServerConfig) -> Iterator[tuple[Location, str]]:
    if server.grpc.workers > 1:
        yield ("server", "grpc", "workers"), "is about one machine; on Ray, models[].scaling says how many replicas"
    for section, port in (("grpc", server.grpc), ("http", server.http)):
        if port.port == 0:
            yield ("server", section, "port"), "should be a fixed port on Ray, since every node opens it; give a number"
        if port.tls is not None:
            yield ("server", section, "tls"), "is nothing that Ray's proxies have; encrypt in front of them"
    for key, allowed in server.admin.model_dump().items():
        if allowed:
            yield ("server", "admin", key), "changes one process; on Ray, change servable.yaml and deploy it again"
    for key in sorted(server.limits.model_fields_set.intersection(LIMITS_OF_PORTS)):
        yield ("server", "limits", key), "holds for a plain server's ports; Ray's proxies don't have it, leave it out"
