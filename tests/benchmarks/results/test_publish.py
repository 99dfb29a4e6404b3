"""The published results: targets, RESULTS.md and the README's table."""

from __future__ import annotations

import pathlib

import pytest

from benchmarks.results import publish as program
from tests.bench.latency.test_results import native, result, row


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "README.md").write_text(f"# x\n{program.BEGIN}\nold figures\n{program.END}\nrest\n")
    return tmp_path


def test_one_command_writes_the_results_and_the_readmes_table(project: pathlib.Path) -> None:
    run = project / "run.json"
    run.write_bytes(result(native(), row(ratio=1.25), native("vgg16"), row("vgg16", ratio=5.0)).as_json())

    code = program.main([str(run)], project)

    page, readme = (project / "benchmarks/RESULTS.md").read_text(), (project / "README.md").read_text()
    assert code == 0
    assert "| lenet5 | 10.000 | 1.25 |" in readme
    assert "| **geometric mean** |  | **2.50** |" in readme
    assert readme.startswith("# x\n")
    assert readme.endswith("rest\n")
    assert "old figures" not in readme
    assert "| fp32 | process | 1 | 2.500 |" in page
    assert "| fp32: geometric mean at least 1.03 | 2.500 | yes |" in page


@pytest.mark.parametrize(
    ("content", "readme", "message"),
    [
        pytest.param(result(row(), complete=False).as_json(), None, "ended before its time", id="incomplete"),
        pytest.param(result(native(), row()).as_json(), "# no markers\n", "Put them around the table", id="no-markers"),
        pytest.param(b"{", None, "run.json: is no result", id="bad-json"),
    ],
)
def test_results_that_can_not_be_published_change_nothing(
    content: bytes, readme: str | None, message: str, project: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = project / "run.json"
    run.write_bytes(content)
    if readme:
        (project / "README.md").write_text(readme)
    before = (project / "README.md").read_text()

    code = program.main([str(run)], project)

    assert code == 2
    assert message in capsys.readouterr().err
    assert (project / "README.md").read_text() == before
    assert not (project / "benchmarks/RESULTS.md").exists()
