"""The published results: targets, RESULTS.md and the README's table."""

from __future__ import annotations

import pathlib

import pytest

from benchmarks.results import publish as program
from benchmarks.results.targets import check_targets, missing_conditions
from tests.bench.latency.test_results import native, result, row


def test_the_readme_says_what_models_were_compiled_with() -> None:
    run = result(native(), row())
    run.environment["compiled_with"] = "trtnode compile"

    assert "compiled with `trtnode compile`." in program.readme_block(run)


def test_targets_are_checked_by_setting() -> None:
    rows = [
        native("a"), row("a", ratio=1.2), row("a", "int8", ratio=3.0, cosine=0.9), row("a", "auto", ratio=1.2),
        native("b", p50_ms=0.015), row("b", ratio=0.8, p50_ms=0.019), row("b", "int8", ratio=0.8, p50_ms=1.0,
        cosine=0.9), row("b", "auto", ratio=0.7, p50_ms=0.5),
    ]  # fmt: skip

    targets = {target.text.split(":")[0] + ("/slowest" * ("no network" in target.text)): target.met
                for target in check_targets(result(*rows))}  # fmt: skip

    assert targets == {
        "fp32": False, "int8": False, "fp32/slowest": True, "int8/slowest": False, "auto/slowest": False, "auto": False,
    }  # fmt: skip


def test_what_grpc_adds_may_not_depend_on_the_setting() -> None:
    rows = [native(), row(), native(via="grpc"), row(via="grpc", over_native_ms=(0.25, 0.15, 0.35))]

    target = check_targets(result(*rows))[-1]

    assert not target.met
    assert target.figure == "lenet5 fp32 further apart; widest: lenet5 fp32, +0.250 (+0.150 to +0.350) ms"


def test_a_difference_that_chance_explains_misses_no_target() -> None:
    rows = [native(), native(via="grpc"), row(via="grpc", over_native_ms=(-0.25, -0.6, 0.1))]

    target = check_targets(result(*rows))[-1]

    assert target.met
    assert target.figure.startswith("none further apart")


def test_the_conditions_that_a_machine_lacks_are_told() -> None:
    lacks = missing_conditions({"features": ["avx512_vnni"], "cores": 4}, [row(threads=None)])

    assert lacks == ["avx512_bf16", "2 threads"]


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
