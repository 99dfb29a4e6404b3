"""Who may import whom, and what a module may be called."""

import ast
import functools
import importlib
import pathlib
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]

MAY_IMPORT = {
    "partitioner": {"partitioner"},
    "engines": {"engines", "partitioner"},
    "protos": {"protos"},
    "serving": {"serving", "engines", "partitioner", "protos"},
    "benchmarks": {"benchmarks", "serving", "engines", "partitioner", "protos"},
}
"""The arrows: serving to engines to partitioner, serving to protos, benchmarks to all of them."""

PARTITIONER_LIBRARIES = {"onnx", "onnx_ir", "numpy", "google.protobuf"}

VENDOR_LIBRARIES = {"openvino", "onnxruntime", "tensorrt", "pycuda"}

NOT_AT_THE_TOP = {
    ("benchmarks/harness/openers.py", "openvino"),
    ("benchmarks/overhead.py", "openvino"),
    ("serving/service.py", "serving"),
}
"""Imports inside functions. The backend must have blocked OpenVINO's telemetry before anything imports OpenVINO; and
``serving.tracing`` needs an extra.
"""

BEFORE_NAMES = {"partitioner": ["import partitioner.late_imports"], "engines": ["import partitioner"]}
"""What a package imports before anything of it imports ``onnx_ir``."""

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
    "rich",
    "sklearn",
    "starlette",
    "tensorrt",
    "tritonclient",
    "uvicorn",
    "yaml",
}

CODE = ("partitioner", "engines", "serving", "protos")


def modules(*packages: str) -> list[str]:
    """Source files as paths below the root, without generated stubs."""
    found = (path for package in packages for path in (ROOT / package).rglob("*.py"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found if not path.stem.endswith("_pb2"))


@functools.cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), path)


def imported(node: ast.AST) -> Iterator[str]:
    """Full names of all that is imported in a piece of code: modules, or things out of modules."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)


def is_within(name: str, *libraries: str) -> bool:
    return any(name == library or name.startswith(f"{library}.") for library in libraries)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_one_way(package) -> None:
    others = set(MAY_IMPORT) - MAY_IMPORT[package]

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


def test_a_vendor_library_is_imported_in_its_own_backend_alone() -> None:
    wrong = [
        (path, name)
        for path in modules(*CODE)
        for name in imported(tree(path))
        if is_within(name, *(library for library in VENDOR_LIBRARIES if path != f"engines/{library}_backend.py"))
    ]

    assert wrong == []


def test_imports_are_absolute() -> None:
    relative = [
        (path, node.lineno)
        for path in modules(*MAY_IMPORT)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]

    assert relative == []


def test_imports_stand_at_the_top_of_the_file() -> None:
    inside = [
        (path, name)
        for path in modules(*MAY_IMPORT)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in imported(node)
    ]

    assert [(path, name) for path, name in inside if (path, name.split(".")[0]) not in NOT_AT_THE_TOP] == []


def test_modules_are_loaded_by_name_in_the_registry_of_backends_alone() -> None:
    loading = {
        path
        for path in modules(*CODE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute | ast.Name)
        and getattr(node, "attr", getattr(node, "id", "")) in ("import_module", "__import__")
    }

    assert loading == {"engines/registry.py"}


def test_no_module_is_named_utils_or_like_a_library() -> None:
    forbidden = {"utils", "util", "helpers", "misc", "common", *LIBRARIES, *sys.stdlib_module_names}

    assert [path for path in modules(*MAY_IMPORT) if pathlib.PurePath(path).stem in forbidden] == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_only_hands_out_names(package) -> None:
    docstring, *statements = tree(f"{package}/__init__.py").body

    others = [ast.unparse(s) for s in statements if not isinstance(s, ast.ImportFrom | ast.Assign)]
    assert isinstance(docstring, ast.Expr)
    assert others == BEFORE_NAMES.get(package, [])


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_public_names_are_sorted_and_exist(package) -> None:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", [])

    # Constants, then classes, then functions, each by the alphabet: the order of the linter.
    assert names == sorted(set(names), key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_what_a_package_imports_is_public(package) -> None:
    statements = tree(f"{package}/__init__.py").body

    names = [alias.name for s in statements if isinstance(s, ast.ImportFrom) for alias in s.names]

    assert sorted(names) == sorted(getattr(importlib.import_module(package), "__all__", []))


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
    assert found == {("serving/metrics.py", "time_ns"), ("serving/tracing.py", "time_ns")}
