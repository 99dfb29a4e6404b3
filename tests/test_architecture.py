"""Folders import what they may, and modules and docstrings have the form that they should."""

from __future__ import annotations

import ast
import functools
import graphlib
import pathlib
import re
import sys
from collections.abc import Iterator

import pytest

import trtnode

ROOT = pathlib.Path(__file__).parents[1]

LINKED = {
    "partitioner": {"partitioner"},
    "engines": {"engines", "partitioner"},
    "protos": {"protos"},
    "serving": {"serving", "engines", "partitioner", "protos"},
    "bench": {"bench", "serving", "engines", "partitioner", "protos"},
}
"""The arrows between the folders of ``trtnode/`` that have a link at the top. Nothing imports one by its bare name."""

PACKAGES = {
    **LINKED,
    "trtnode": {"serving", "engines", "partitioner"},
    "benchmarks": {"benchmarks", "trtnode", *LINKED},
}
"""Those, and the public functions above them, which bench doesn't need."""

MAY_IMPORT: dict[str, set[str]] = {
    "partitioner/model": set(),
    "partitioner/graph": {"model"},
    "partitioner/passes": {"graph", "model"},
    "partitioner/passes/rewrites": {"model", "passes"},
    "partitioner/cut": {"graph", "model", "passes", "passes/rewrites"},
    "partitioner/compiled": {"cut", "graph", "model"},
    "partitioner/pipelines": {"compiled", "graph", "model", "passes"},
    "engines/artifact": set(),
    "engines/backends": {"artifact"},
    "engines/inputs": {"artifact", "backends"},
    "engines/onnxruntime/workarounds": set(),
    "engines/onnxruntime": {"artifact", "backends", "onnxruntime/workarounds"},
    "engines/openvino": {"artifact", "backends"},
    "engines/sparse": {"artifact", "backends", "onnxruntime"},
    "engines/cuda": {"backends"},
    "engines/tensorrt/labelling": set(),
    "engines/tensorrt": {"artifact", "backends", "cuda", "tensorrt/labelling"},
    "engines/quantization": {"artifact", "backends", "inputs", "onnxruntime"},
    "engines/precision": {"backends", "quantization"},
    "engines/runtime": {"artifact", "backends", "cuda", "inputs", "onnxruntime", "precision"},
    "engines/build": {"artifact", "backends", "inputs", "onnxruntime", "precision", "runtime"},
    "engines/tuning": {
        *{"artifact", "backends", "build", "inputs", "onnxruntime", "precision", "quantization", "runtime"},
    },
    "engines/diagnostics": {"artifact", "build", "inputs", "onnxruntime", "precision", "runtime"},
    "engines/compile": {
        *{"artifact", "backends", "build", "inputs", "onnxruntime", "runtime", "sparse", "tuning"},
    },
    "engines/conversion": {
        *{"artifact", "backends", "build", "compile", "inputs", "onnxruntime", "precision", "quantization", "sparse"},
        "tuning",
    },
    "serving/executables": {"protocol", "schema"},
    "serving/threads": set(),
    "serving/schema": set(),
    "serving/protocol": set(),
    "serving/telemetry": set(),
    "serving/security": {"schema", "telemetry"},
    "serving/batching": {"executables", "protocol", "schema", "telemetry", "threads"},
    "serving/triton": {"protocol", "schema"},
    "serving/text": {"schema"},
    "serving/sequences": {"executables", "protocol", "schema", "telemetry", "threads"},
    "serving/models": {
        "batching",
        "executables",
        "protocol",
        "schema",
        "sequences",
        "telemetry",
        "text",
        "threads",
        "triton",
    },
    "serving/config": {"models", "schema", "triton"},
    "serving/service": {
        "batching",
        "models",
        "protocol",
        "schema",
        "security",
        "sequences",
        "telemetry",
        "text",
        "threads",
        "triton",
    },
    "serving/grpc": {"protocol", "schema", "security", "service", "telemetry", "threads"},
    "serving/pages": {"models", "security", "service", "telemetry"},
    "serving/rest": {"models", "pages", "protocol", "schema", "security", "service", "telemetry", "text"},
    "serving/cli/terminal": {"pages"},
    "serving/cli": {"cli/terminal", "pages", "telemetry", "threads"},
    "serving/workers": {
        "executables",
        "grpc",
        "models",
        "pages",
        "rest",
        "schema",
        "security",
        "service",
        "telemetry",
    },
    "serving/process": {"grpc", "models", "rest", "schema", "security", "service", "telemetry", "workers"},
    "serving/ray_serve": {
        *{"config", "grpc", "models", "process", "rest", "schema", "security", "service", "telemetry", "workers"},
    },
    "bench/latency_report": set(),
    "bench/load": set(),
    "bench/networks": set(),
    "benchmarks/modern": set(),
    "benchmarks/partition": set(),
    "bench/latency": {"latency_report", "networks"},
    "benchmarks/serving": set(),
    "benchmarks/soak": set(),
    "benchmarks/attacks": {"soak"},
    "benchmarks/ray_cluster": set(),
    "benchmarks/results": set(),
}
"""The arrows between the folders of a package, lowest floor first. All may import what stands beside the folders."""

PARTITIONER_LIBRARIES = {"onnx", "onnx_ir", "numpy", "google.protobuf"}

VENDOR_LIBRARIES = {
    "openvino": "engines/openvino/",
    "onnxruntime": "engines/onnxruntime/",
    "tensorrt": "engines/tensorrt/library.py",
    "tensorrt_rtx": "engines/tensorrt/library.py",
    "pycuda": "engines/cuda/",
    "ray": "serving/ray_serve/",
}
"""Each vendor library, and the only place that imports it."""

QUESTIONS = ("What ", "Whether ", "How ", "Which ")
"""Beginnings that no docstring has."""

NOT_AT_THE_TOP = {
    ("bench/latency/openers.py", "openvino"),
    ("benchmarks/overhead.py", "openvino"),
    ("serving/service/inference_service.py", "serving"),
}
"""Imports inside functions. The backend must have blocked OpenVINO's telemetry before anything imports OpenVINO; and
``trtnode.serving.telemetry.tracing`` needs an extra."""

LIBRARIES = {
    "cryptography",
    "google",
    "grpc",
    "hypothesis",
    "jinja2",
    "ml_dtypes",
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "opentelemetry",
    "openvino",
    "prometheus_client",
    "protobuf",
    "pycuda",
    "pydantic",
    "pytest",
    "ray",
    "rich",
    "sklearn",
    "starlette",
    "tensorrt",
    "tokenizers",
    "tritonclient",
    "uvicorn",
    "yaml",
}

CODE = ("partitioner", "engines", "serving", "protos", "trtnode")
"""All but bench, which measures libraries beside their engines."""


def modules(*packages: str) -> list[str]:
    """Source files as paths below the root, through its links, without generated stubs."""
    files = {package: (ROOT / package).glob("*.py" if package == "trtnode" else "**/*.py") for package in packages}
    found = (path for package in packages for path in files[package])
    return sorted(path.relative_to(ROOT).as_posix() for path in found if not path.stem.endswith("_pb2"))


@functools.cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), path)


def imported(node: ast.AST) -> Iterator[str]:
    """Full names of all that is imported in a piece of code, those of linked folders without ``trtnode`` in front."""
    for name in written_names(node):
        first, _, rest = name.partition(".")
        yield rest if first == "trtnode" and rest.partition(".")[0] in LINKED else name


def written_names(node: ast.AST) -> Iterator[str]:
    """Full names of all that is imported, as they are written: modules, or things out of modules."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)


def is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def is_within(name: str, *libraries: str) -> bool:
    return any(name == library or name.startswith(f"{library}.") for library in libraries)


def file_of(name: str) -> str:
    """The file of a module, or of the module that a full name is in."""
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").exists():
        return path.with_suffix(".py").relative_to(ROOT).as_posix()
    return f"{name.replace('.', '/')}/__init__.py" if path.is_dir() else file_of(name.rpartition(".")[0])


@functools.cache
def imported_files(path: str) -> frozenset[str]:
    """Files of the same package that a file imports."""
    package = path.partition("/")[0]
    return frozenset({file_of(name) for name in imported(tree(path)) if name.startswith(f"{package}.")} - {path})


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def test_the_table_has_every_folder() -> None:
    folders = {folder_of(path) for path in modules(*PACKAGES)} - set(PACKAGES)

    assert sorted(MAY_IMPORT) == sorted(folders - {"benchmarks/serving/peer_models"})


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_folders_import_what_the_table_says_and_nothing_else(folder: str) -> None:
    package = folder.partition("/")[0]
    files = [path for path in modules(package) if folder_of(path) == folder]

    arrows = {(path, folder_of(other)) for path in files for other in imported_files(path)}

    allowed = {f"{package}/{name}" for name in MAY_IMPORT[folder]} | {package, folder}
    assert [(path, other) for path, other in sorted(arrows) if other not in allowed] == []
    assert allowed - {package, folder} - {other for _, other in arrows} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_files(package: str) -> None:
    files = {path: imported_files(path) for path in modules(package) if path != f"{package}/__init__.py"}

    try:
        list(graphlib.TopologicalSorter(files).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_the_file_that_makes_a_folder_a_package_is_its_description(folder: str) -> None:
    docstring, *code = tree(f"{folder}/__init__.py").body

    assert code == []
    assert isinstance(docstring, ast.Expr)
    assert len(ast.unparse(docstring).splitlines()) <= 15


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_holds_few_files(folder: str) -> None:
    files = [path for path in modules(folder.partition("/")[0]) if folder_of(path) == folder]

    assert 2 <= len(files) - 1 <= 14


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    others = set(PACKAGES) - PACKAGES[package] - {package}

    wrong = [(path, name) for path in modules(package) for name in imported(tree(path)) if is_within(name, *others)]

    assert wrong == []


def test_the_partitioner_knows_no_library_but_those_of_onnx() -> None:
    allowed = {"partitioner", *PARTITIONER_LIBRARIES, *sys.stdlib_module_names}

    wrong = [
        (path, name)
        for path in modules("partitioner")
        for name in imported(tree(path))
        if not is_within(name, *allowed)
    ]

    assert wrong == []


def test_a_vendor_library_is_imported_in_its_own_place_alone() -> None:
    wrong = [
        (path, name)
        for path in modules(*CODE)
        for name in imported(tree(path))
        if is_within(name, *(library for library, place in VENDOR_LIBRARIES.items() if not path.startswith(place)))
    ]

    assert wrong == []


def test_imports_are_absolute() -> None:
    relative = [
        (path, node.lineno)
        for path in modules(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]

    assert relative == []


def test_imports_stand_at_the_top_of_the_file() -> None:
    inside = [
        (path, name)
        for path in modules(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in imported(node)
    ]

    assert [(path, name) for path, name in inside if (path, name.split(".")[0]) not in NOT_AT_THE_TOP] == []


def test_modules_are_loaded_by_name_for_engine_libraries_and_public_names_alone() -> None:
    loading = {
        path
        for path in modules(*CODE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute | ast.Name)
        and getattr(node, "attr", getattr(node, "id", "")) in ("import_module", "__import__", "resolve_name")
    }

    # user_functions takes functions of the user by name; start imports onnx_ir before anything else is there.
    assert loading == {
        *{"engines/backends/registry.py", "engines/openvino/backend.py", "engines/tensorrt/library.py"},
        *{"engines/quantization/user_functions.py", "partitioner/start.py"},
        *{"serving/cli/command.py", "trtnode/__init__.py"},
    }


def test_docstrings_say_instead_of_asking() -> None:
    asking = [
        (path, node.lineno)
        for path in modules(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.stmt) and is_docstring(node) and ast.unparse(node).lstrip("'\"").startswith(QUESTIONS)
    ]

    assert asking == []


def test_no_module_is_named_utils_or_like_a_library() -> None:
    forbidden = {"utils", "util", "helpers", "misc", "common", *LIBRARIES, *sys.stdlib_module_names}

    assert [path for path in modules(*PACKAGES) if pathlib.PurePath(path).stem in forbidden] == []


@pytest.mark.parametrize("package", ["partitioner", "engines", "serving", "bench", "benchmarks"])
def test_a_package_is_its_description(package: str) -> None:
    (docstring,) = tree(f"{package}/__init__.py").body

    assert is_docstring(docstring)


def test_public_names_are_sorted_and_come_from_where_types_are_checked() -> None:
    statements = ast.walk(tree("trtnode/__init__.py"))
    typed = [s for s in statements if isinstance(s, ast.ImportFrom) and (s.module or "").startswith("trtnode.")]

    homes = {alias.name: (s.module or "").removeprefix("trtnode.") for s in typed for alias in s.names}

    # Constants, then classes, then functions, each by the alphabet: the order of the linter.
    order = sorted(homes, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert trtnode.__all__ == order
    assert homes == trtnode._HOMES
    assert [name for name in order if not hasattr(trtnode, name)] == []


def test_a_folder_is_imported_by_its_one_name() -> None:
    """By its bare name it would be a second copy of the same module in a checkout, and another's in site-packages."""
    everything = [*modules(*PACKAGES), *modules("tests", "examples", "scripts")]
    bare = re.compile(rf"^\s*(from|import) ({'|'.join(LINKED)})\b", re.MULTILINE)

    assert [path for path in everything if bare.search((ROOT / path).read_text(encoding="utf-8"))] == []


def test_links_at_the_top_lead_into_the_package() -> None:
    links = {path.name: str(path.readlink()) for path in ROOT.iterdir() if path.is_symlink()}

    assert links == {name: f"trtnode/{name}" for name in LINKED}


def test_times_are_measured_by_clocks_that_never_jump() -> None:
    """The wall clock may only tell when something happened."""
    found = {
        (path, node.attr)
        for path in modules(*CODE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
        and node.attr in ("time", "time_ns")
    }

    # When a model last ended a request, for statistics; and when a span began, for its collector.
    assert found == {("serving/telemetry/request_stats.py", "time_ns"), ("serving/telemetry/tracing.py", "time_ns")}
