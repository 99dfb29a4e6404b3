"""Calls of TensorRT in this program, looked up in the real Python bindings of several releases.

The bindings import over an empty native library that is built here, so that names, arguments and enumerations are
real; nothing computes.
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile
from typing import Any

import pytest

from real_signatures import READ_ONLY, differences
from simulated_tensorrt import Simulation, make_tensorrt
from simulated_tensorrt.surface import FIRST
from trtnode.engines.tensorrt import builder, loaded_engine, stage
from trtnode.engines.tensorrt.labelling import parser
from trtnode.engines.tensorrt.labelling.parser import CODES

ROOT = pathlib.Path(__file__).parents[3]
RTX = "1.7.1.116"
"""Stands for TensorRT for RTX, in the release that is installed. It needs no empty library."""
RELEASES = ("10.3.0", "10.13.3.9", "11.4.0.106", RTX)
LIBRARIES = ("libnvinfer", "libnvinfer_plugin", "libnvonnxparser")
SYMBOLS = (
    "createInferBuilder_INTERNAL createInferRefitter_INTERNAL createInferRuntime_INTERNAL createNvOnnxParser_INTERNAL"
    " createNvOnnxParserRefitter_INTERNAL getBuilderPluginRegistry getNvOnnxParserVersion getPluginRegistry"
    " initLibNvInferPlugins"
).split()
PROPERTIES = [
    "IBuilderConfig.builder_optimization_level",
    "ILayer.num_outputs",
    "INetworkDefinition.num_inputs",
    "INetworkDefinition.num_layers",
    "INetworkDefinition.num_outputs",
    "ITensor.allowed_formats",
    "ITensor.name",
    "ITensor.shape",
    "OnnxParser.num_errors",
]
SOURCES = (
    builder,
    parser,
    loaded_engine,
    stage,
)
ONLY_RTX = ("EngineInvalidityDiagnostics", "ICudaEngine.create_runtime_config", "Runtime.get_engine_validity")
"""Beginnings of names that our code uses where they are there: in TensorRT for RTX."""
OWNERS = {
    "trt.": "",
    "self.trt.": "",
    "plan.trt.": "",
    "context.": "IExecutionContext.",
    "engine.": "ICudaEngine.",
    "self._engine.": "ICudaEngine.",
    "runtime.": "Runtime.",
}
"""Names of the library's objects in the source, and their classes."""

DOWNLOAD_S, ASK_S = 60, 60

CHILD = """
import importlib, json, sys
from trtnode.engines.tensorrt.labelling.parser import make_logger

trt = importlib.import_module(sys.argv[1])

def value_of(chain):
    value = trt
    for part in chain.split("."):
        value = getattr(value, part, None)
    return value

def kind_of(member):
    if isinstance(member, property):
        return "property" if member.fset else "property that is only read"
    return "method" if callable(member) else "value"

def describe(kind):
    if hasattr(kind, "__members__"):
        return {name: int(member) for name, member in kind.__members__.items()}
    names = [name for name in dir(kind) if name == "__init__" or not name.startswith("_")]
    return {name: [kind_of(getattr(kind, name)), getattr(kind, name).__doc__ or ""] for name in names}

logger = make_logger(trt)
logger.log(trt.ILogger.Severity.ERROR, "said")
chains, kinds = json.loads(sys.stdin.read())
print(json.dumps({
    "version": trt.__version__,
    "missing": [chain for chain in chains if value_of(chain) is None],
    "last": logger.last(),
    "codes": sorted(trt.ErrorCode.__members__),
    "kinds": {name: describe(getattr(trt, name)) for name in kinds if hasattr(trt, name)},
}))
"""


def has(module: Any, name: str) -> bool:
    """Return whether a module has a class, or a class of it a member."""
    kind, _, member = name.partition(".")
    return hasattr(module, kind) and (not member or hasattr(getattr(module, kind), member))


def used_names() -> set[str]:
    """Return the names that the source takes from the library, for example ``ILogger.Severity.WARNING``."""
    sources = (pathlib.Path(str(module.__file__)) for module in SOURCES)
    trees = [ast.parse(source.read_text(encoding="utf-8")) for source in sources]
    texts = {ast.unparse(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    chains = [text for text in texts if "(" not in text]
    return {
        f"{kind}{chain[len(start) :]}" for chain in chains for start, kind in OWNERS.items() if chain.startswith(start)
    }


Bindings = tuple[str, dict[str, Any]]
"""A release, and what it says of the names that it is asked about."""


@pytest.fixture(scope="module", params=RELEASES)
def bindings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bindings:
    """Asks a release of the bindings about all names; skips where it can't be had."""
    release = request.param
    if release == RTX:
        rtx = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")
        return rtx.__version__, ask("tensorrt_rtx", rtx.__version__, {**os.environ, "PYTHONPATH": str(ROOT)})
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler for an empty native library")
    wheels = pathlib.Path(request.config.cache.mkdir("tensorrt_bindings"))
    folder = tmp_path_factory.mktemp("bindings")
    with zipfile.ZipFile(find_wheel(release, wheels)) as wheel:
        wheel.extractall(folder)
    source = folder / "empty.c"
    source.write_text("".join(f"void *{symbol}(void) {{ return 0; }}\n" for symbol in SYMBOLS), encoding="utf-8")
    for library in LIBRARIES:
        name = f"{library}.so.{release.split('.')[0]}"
        subprocess.run(["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, source], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return release, ask("tensorrt_bindings", release, environment)


def ask(module: str, release: str, environment: dict[str, str]) -> dict[str, Any]:
    """Ask a module in a process of its own which names it lacks, and what its classes have."""
    kinds = sorted(vars(make_tensorrt(Simulation(version=release))))
    command, asked = [sys.executable, "-c", CHILD, module], json.dumps([[*used_names(), *PROPERTIES, *FIRST], kinds])
    done = subprocess.run(command, input=asked, env=environment, capture_output=True, text=True, timeout=ASK_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def find_wheel(release: str, folder: pathlib.Path) -> pathlib.Path:
    """Find a wheel in a folder, or download it there."""
    pattern = f"tensorrt_cu12_bindings-{release}-*.whl"
    if not list(folder.glob(pattern)):
        package = f"tensorrt-cu12-bindings=={release}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        try:
            subprocess.run([*command, "--dest", folder, package], timeout=DOWNLOAD_S, check=True, capture_output=True)
        except subprocess.SubprocessError as error:
            pytest.skip(f"{package} can't be downloaded ({type(error).__name__})")
    return next(iter(folder.glob(pattern)))


def test_the_real_bindings_have_all_that_our_code_uses(bindings: Bindings) -> None:
    release, found = bindings

    assert found["version"] == release
    optional = () if release.startswith("1.") else ONLY_RTX
    missing = {*used_names(), *PROPERTIES} & set(found["missing"])
    assert [name for name in missing if not name.startswith(optional)] == []
    assert set(CODES) <= set(found["codes"])
    assert found["last"] == "said"


def test_the_simulator_has_nothing_that_the_real_bindings_lack(bindings: Bindings) -> None:
    release, found_in = bindings
    simulated, real = make_tensorrt(Simulation(version=release)), found_in["kinds"]

    kinds = {name: kind for name, kind in vars(simulated).items() if isinstance(kind, type)}
    assert set(kinds) - set(real) == set()
    assert {name: found for name, kind in kinds.items() if (found := [*differences(kind, real[name])])} == {}


def test_the_simulator_leaves_out_what_a_release_lacks_and_nothing_else(bindings: Bindings) -> None:
    release, found = bindings
    simulated = make_tensorrt(Simulation(version=release))
    absent = [name for name, first in FIRST.items() if Simulation(version=release).release < first]

    assert sorted(set(FIRST) & set(found["missing"])) == sorted(absent)
    assert [name for name in absent if has(simulated, name)] == []


def test_names_are_found_in_the_source() -> None:
    assert {"Builder", "OnnxParser", "NetworkDefinitionCreationFlag.STRONGLY_TYPED"} <= used_names()


def test_a_difference_would_be_found() -> None:
    class Other:
        speed = 1

        def run(self, stream: int, fast: bool = False) -> None: ...

    real = {"run": ["method", "run(self: Other, stream_handle: int) -> bool"], "speed": [READ_ONLY, ""]}

    assert [*differences(Other, real)] == [
        "run(('stream',), ('stream', 'fast')) is not run(('stream_handle',))",
        "speed is set, which is a property that is only read",
    ]
