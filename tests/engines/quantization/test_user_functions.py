from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

from trtnode.engines.quantization.user_functions import load_function


@pytest.fixture(autouse=True)
def current_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        pytest.param("my_samples.py", "my_samples:given", id="module"),
        pytest.param("my_package/__init__.py", "my_package:given", id="package"),
        pytest.param("my_folder/inner/samples.py", "my_folder.inner.samples:given", id="folder"),
    ],
)
def test_a_function_is_found_in_the_current_folder(file: str, name: str, current_folder: pathlib.Path) -> None:
    path = current_folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("def given(): return 7\n")

    assert load_function(name)() == 7


def test_a_module_of_the_current_folder_imports_libraries_from_elsewhere(current_folder: pathlib.Path) -> None:
    (current_folder / "mailbox.py").write_text("raise SystemExit('this is not the one of the standard library')")
    (current_folder / "my_letters.py").write_text("import mailbox\nbox = mailbox.Mailbox\n")
    before = list(sys.path)

    assert load_function("my_letters:box").__module__ == "mailbox"
    assert sys.path == before


def test_a_module_that_is_imported_already_stays(current_folder: pathlib.Path) -> None:
    (current_folder / "json.py").write_text("def dumps(_): return 'ours'")

    assert load_function("json:dumps")(1) == "1"


def test_a_module_that_fails_is_not_kept(current_folder: pathlib.Path) -> None:
    (current_folder / "my_failure.py").write_text("1 / 0")

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load_function("my_failure:given")
