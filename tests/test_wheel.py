"""What installing the project puts on a machine."""

import configparser
import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (file,) = folder.glob("*.whl")
    return zipfile.Path(file)


def test_the_wheel_installs_nothing_but_our_packages(wheel) -> None:
    names = {"dist-info" if entry.name.endswith(".dist-info") else entry.name for entry in wheel.iterdir()}

    assert names == {"benchmarks", "engines", "partitioner", "protos", "serving", "dist-info"}
    assert all(entry.name.startswith("trtnode-") for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))


def test_every_package_comes_with_its_modules(wheel) -> None:
    packages = [entry for entry in wheel.iterdir() if not entry.name.endswith(".dist-info")]

    assert all((package / "__init__.py").exists() for package in packages)
    for package in packages:
        here = {path.name for path in (ROOT / package.name).glob("*.py")}
        assert {entry.name for entry in package.iterdir() if entry.name.endswith(".py")} == here


def test_the_templates_of_pages_come_along(wheel) -> None:
    here = {path.name for path in (ROOT / "serving" / "templates").iterdir()}

    assert {entry.name for entry in (wheel / "serving" / "templates").iterdir()} == here


def test_it_brings_two_programs(wheel) -> None:
    (info,) = (entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    entry_points = configparser.ConfigParser()
    entry_points.read_string((info / "entry_points.txt").read_text(encoding="utf-8"))

    assert set(entry_points["console_scripts"]) == {"trtnode", "serve"}
