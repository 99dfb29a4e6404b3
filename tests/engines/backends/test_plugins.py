"""Engines of other packages: found by their entry points, chosen by users alone, and trusted by a signature alone."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import offered_engines
from arrays import floats
from offered_engines import forget_engines, write_wheel
from stand_in_workers import InProcessWorker
from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.backends.plugins import GROUP, engine_names, engine_problem
from trtnode.engines.backends.registry import get_backend, resolve_engine
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import BackendMissingError, UnknownBackendError
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.errors import OptionError
from trtnode.partitioner.options import made_of
from workshop import Workshop

NET = "g (float[2,4] x) => (float[2,4] y) { e = Exp(x) y = Softmax(e) }"
CONTRACT = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "trtnode.engines.backends.contract"]

Install = Callable[..., pathlib.Path]


@pytest.fixture
def install(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with an engine; returns the file that it writes when it is imported."""
    yield functools.partial(offered_engines.install, monkeypatch, tmp_path)
    forget_engines()


def check_contract(name: str, site: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRTNODE_ENGINE": name, "PYTHONPATH": str(site)}
    command = [sys.executable, *CONTRACT, *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_engine_in_a_wheel_of_its_own_keeps_the_contract(tmp_path: pathlib.Path) -> None:
    wheel, site = write_wheel(tmp_path, "slow_engine", "slow"), tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True)

    done = check_contract("slow", site)

    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_engine_that_lies_breaks_the_contract(tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(write_wheel(tmp_path, "lying_engine", "liar", shift=1)) as wheel:
        wheel.extractall(tmp_path)

    done = check_contract("liar", tmp_path, "-k", "test_answers_are_those_of_the_reference")

    assert done.returncode == 1
    assert "FAILED" in done.stdout


def test_engine_of_another_package_compiles_a_model_that_asks_for_it(
    install: Install, workshop: Workshop, in_process: InProcessWorker
) -> None:
    install("slow_engine", "slow")

    compiled = workshop.compile(workshop.write(NET), engine="slow", all_engines=True, worker=in_process)

    assert (compiled.engine, len(compiled.report.segments)) == ("slow", 1)


def test_engine_that_lies_is_caught_by_the_check(
    install: Install, workshop: Workshop, in_process: InProcessWorker
) -> None:
    install("lying_engine", "liar", shift=1)

    compiled = workshop.compile(workshop.write(NET), engine="liar", all_engines=True, worker=in_process)

    assert compiled.report.segments == ()
    assert {one.code for one in compiled.report.native} == {"INACCURATE"}


@pytest.fixture
def signed(install: Install, workshop: Workshop, in_process: InProcessWorker) -> tuple[pathlib.Path, Trust, Install]:
    """A compiled file with an engine of a package that is found and not imported since; and trust in its signer."""
    install("slow_engine", "slow")
    path = workshop.compile_file(workshop.write(NET), engine="slow", all_engines=True, worker=in_process)
    generate_key(workshop.folder / "signer")
    sign_model(path, path, workshop.folder / "signer")
    install("slow_engine", "slow").unlink()
    return path, Trust.of([workshop.folder / "signer.pub"], None), install


def test_file_that_names_an_engine_never_has_it_imported(
    signed: tuple[pathlib.Path, Trust, Install], caplog: pytest.LogCaptureFixture, workshop: Workshop
) -> None:
    path, _, _ = signed

    executable = open_model(path)
    (answer,) = executable.run({"x": floats(2, 4)}).values()

    assert np.allclose(np.sum(answer, axis=1), 1)
    assert not (workshop.folder / "slow_engine.imported").exists()
    assert "its signature is not of this machine, and no key is trusted" in caplog.text


def test_signed_engine_runs_for_whoever_trusts_the_signer(
    signed: tuple[pathlib.Path, Trust, Install], workshop: Workshop, fallbacks: Callable[..., list[str]]
) -> None:
    path, trust, _ = signed

    executable = open_model(path, run=RunOptions(trust=trust))
    reasons = fallbacks(executable)
    executable.run({"x": floats(2, 4)})

    assert (executable.facts.segments, reasons) == (1, [])
    assert (workshop.folder / "slow_engine.imported").exists()


def test_name_of_this_package_stays_with_it(
    install: Install, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    imported = [install("rival", name) for name in ("openvino",)]

    assert type(get_backend("openvino")).__module__ == "trtnode.engines.openvino.backend"
    assert engine_names().count("openvino") == 1
    told = "Engine 'openvino' of package rival is left out, because trtnode has an engine of this name"
    assert told in caplog.text
    assert not imported[0].exists()


@pytest.mark.parametrize("name", ["auto", "native"])
def test_words_for_a_choice_name_no_engine(name: str, install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("rival", name)

    assert engine_names().count(name) == 1
    assert f"Engine {name!r} of package rival is left out" in caplog.text


def test_of_two_packages_with_one_name_the_first_by_the_alphabet_has_it(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("later", "slow", place=1)
    install("earlier", "slow")

    assert type(get_backend("slow")).__module__ == "earlier"
    assert "Engine 'slow' of package later is left out, because earlier has an engine of this name" in caplog.text


@pytest.mark.parametrize(
    ("target", "told"),
    [
        pytest.param("no_such_module:ENGINE", "ModuleNotFoundError: No module named 'no_such_module'", id="no-module"),
        pytest.param("broken:Backend", "broken:Backend is no EngineLibrary", id="another-thing"),
    ],
)
def test_entry_point_that_leads_nowhere_is_told_once_and_the_others_go_on(
    target: str, told: str, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("broken", "broken", target=target)

    found = [resolve_engine("auto") for _ in range(2)]

    assert found == ["openvino"] * 2
    assert caplog.text.count(f"Engine 'broken' of package broken can't be used: {told}") == 1
    with pytest.raises(UnknownBackendError, match="There is no engine 'broken'"):
        resolve_engine("broken")


def test_engine_whose_code_is_missing_is_passed_over_by_auto(
    install: Install, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    install("hollow", "hollow", place=1)
    module = tmp_path / "site_of_hollow" / "hollow.py"
    module.write_text(module.read_text().replace('"hollow:Backend"', '"gone:Backend"'))

    assert resolve_engine("auto") == "openvino"
    assert "Engine hollow can't be imported (ModuleNotFoundError: No module named 'gone')" in caplog.text
    with pytest.raises(BackendMissingError, match="Engine hollow can't be imported"):
        get_backend("hollow")


@pytest.mark.parametrize(
    ("place", "chosen"),
    [
        pytest.param(25, "slow", id="before-openvino"),
        pytest.param(35, "openvino", id="behind-openvino"),
        pytest.param(None, "openvino", id="never"),
    ],
)
def test_engine_says_its_place_in_auto(place: int | None, chosen: str, install: Install) -> None:
    install("slow_engine", "slow", place=place)

    assert resolve_engine("auto") == chosen


def test_name_of_no_engine_is_refused_with_those_that_there_are(install: Install) -> None:
    imported = install("slow_engine", "slow")

    problem = engine_problem("nonsense") or ""

    assert re.fullmatch(r"should be one of auto, (\S+, )+slow, native", problem)
    assert "onnxruntime" not in problem
    with pytest.raises(OptionError, match="should be one of auto"):
        made_of(CompileOptions, {"engine": "nonsense"})
    assert made_of(CompileOptions, {"engine": "slow"}).engine == "slow"
    assert not imported.exists()


def test_engines_of_this_package_are_entry_points_too() -> None:
    points = importlib.metadata.distribution("trtnode").entry_points.select(group=GROUP)

    assert {point.name for point in points} >= {"openvino", "sparse", "tensorrt", "tensorrt-rtx"}
    assert all(isinstance(point.load().backend, str) for point in points)
