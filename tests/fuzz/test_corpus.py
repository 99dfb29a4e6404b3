"""Every input that once ended as none may, replayed."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.fuzz.targets import Targets

CORPUS = pathlib.Path(__file__).with_name("corpus")
CASES = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    targets = Targets(tmp_path_factory.mktemp("fuzz"))
    yield targets
    targets.close()


@pytest.mark.parametrize("case", CASES, ids=[str(case.relative_to(CORPUS)) for case in CASES])
def test_what_was_found_once_ends_well(targets: Targets, case: pathlib.Path) -> None:
    assert targets.check(case.parent.name, case.read_bytes()) == ""
