"""The documents work when pasted: every block of shell and Python runs, in order, in one shell a document.

A block that can't run has a comment before it that says why: ``<!-- not run: REASON -->``. The reader's folder holds
the checkout's examples and configurations. Readers of the reference pages have a ``model.onnx`` and ``samples.npz`` of
their own. Servers get free ports in place of 8001 and 8002, so that documents run side by side.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
import yaml

from trtnode.engines.build.options import EVERY_ENGINE
from trtnode.serving.schema.server import ServableConfig

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "deploy/README.md")),
    *sorted((ROOT / "docs").glob("**/*.md")),
]
LINE_LIMITS = {"README.md": 150, "ARCHITECTURE.md": 250}
LANGUAGES = {"sh", "python", "yaml", "text", "json"}
LIMIT_S = 280
SHIM = """#!/bin/sh
if [ "$1" = serve ]; then exec {python} -m trtnode "$@" --port {grpc} --http-port {http}; fi
exec {python} -m trtnode "$@"
"""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block, with the line of its fence and the reason why it isn't run."""

    language: str
    line: int
    text: str
    reason: str | None


def blocks(document: pathlib.Path) -> Iterator[Block]:
    before, fence, first, lines = "", None, 0, list[str]()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if fence is None and line.startswith("```"):
            fence, first, lines = line.removeprefix("```"), number, []
        elif line == "```" and fence is not None:
            found = re.fullmatch(r"<!-- not run: (.+) -->", before)
            yield Block(fence, first, "\n".join(lines), found and found[1])
            fence, before = None, ""
        elif fence is not None:
            lines.append(line)
        elif line:
            before = line
    assert fence is None, f"{document.name}:{first}: the block has no end"


def name_of(document: pathlib.Path) -> str:
    return document.relative_to(ROOT).as_posix()


def runnable(document: pathlib.Path) -> list[Block]:
    return [block for block in blocks(document) if block.language in ("sh", "python") and block.reason is None]


def script_of(document: pathlib.Path) -> str:
    """Return one shell program for all blocks; errors and the lines before them name the block."""
    parts = ["set -eu -o pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for block in runnable(document):
        is_python = block.language == "python"
        text = f"python - <<'END_OF_BLOCK'\n{block.text}\nEND_OF_BLOCK" if is_python else block.text
        parts += [f"echo '== {name_of(document)}:{block.line}' >&2", text]
    return "\n".join(parts) + "\n"


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def furnish(folder: pathlib.Path, document: pathlib.Path) -> None:
    """Put into a folder what the readers of a document have."""
    for name in ("examples", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    if document.parent.name == "docs":
        shutil.copy(folder / "examples/digits/digits.onnx", folder / "model.onnx")
        shutil.copy(folder / "examples/digits/calibration.npz", folder / "samples.npz")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """One for all documents, as their reader has: many compile the same model."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def programs(tmp_path: pathlib.Path) -> tuple[pathlib.Path, int, int]:
    """A folder with ``trtnode`` and ``python``, and the ports of the servers that ``trtnode`` starts."""
    folder = tmp_path / "programs"
    folder.mkdir()
    grpc, http = free_ports()
    for name, text in (
        ("trtnode", SHIM.format(python=sys.executable, grpc=grpc, http=http)),
        ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder, grpc, http


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_blocks_have_a_language(document: pathlib.Path) -> None:
    assert [(block.line, block.language) for block in blocks(document) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_configurations_have_keys_that_there_are(document: pathlib.Path, tmp_path: pathlib.Path) -> None:
    one_model = {"name": "m", "path": "m.onnx"}
    for block in blocks(document):
        if block.language == "yaml":
            tree = yaml.safe_load(textwrap.dedent(block.text).replace("...", "[1]"))
            is_whole = tree.keys() & {"server", "cache", "models", "trust"}
            whole = tree if is_whole else {"models": [{**one_model, **tree}]}
            ServableConfig.model_validate({"models": [one_model], **whole}, context={"folder": tmp_path})


@pytest.mark.release
@pytest.mark.parametrize("document", [one for one in DOCUMENTS if runnable(one)], ids=name_of)
def test_what_a_document_says_can_be_pasted(
    document: pathlib.Path, tmp_path: pathlib.Path, cache: pathlib.Path, programs: tuple[pathlib.Path, int, int]
) -> None:
    paste(document, tmp_path / "reader", cache, programs)


TUTORIALS = [one for one in DOCUMENTS if one.parent.name == "tutorials"]


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=name_of)
def test_a_tutorial_has_a_cache_of_its_own(tutorial: pathlib.Path) -> None:
    """Its output holds where its models were compiled before."""
    first = runnable(tutorial)[0]

    assert first.text.startswith("export XDG_CACHE_HOME=$(mktemp -d)")


def paste(
    document: pathlib.Path, folder: pathlib.Path, cache: pathlib.Path, programs: tuple[pathlib.Path, int, int]
) -> None:
    """Run what a document says in a new folder."""
    furnish(folder, document)
    bin_folder, grpc, http = programs
    script = script_of(document)
    if "tensorrt-rtx" in script:
        pytest.importorskip("tensorrt_rtx")
    script = re.sub(r"\b8001\b", str(grpc), re.sub(r"\b8002\b", str(http), script))
    environment = {
        **{name: value for name, value in os.environ.items() if name != EVERY_ENGINE},
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(cache),
        "TMPDIR": str(folder.parent),
    }

    shell = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed, _ = shell.communicate(timeout=LIMIT_S)
    finally:
        stop(shell.pid)

    assert shell.returncode == 0, printed[-4000:]


def stop(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md"], ids=name_of)
def test_links_lead_to_files_and_headings(document: pathlib.Path) -> None:
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))

    assert [link for link in links if "://" not in link and not leads_somewhere(document, link)] == []


def leads_somewhere(document: pathlib.Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = document.parent / path if path else document
    return target.exists() and (not heading or heading in headings(target))


def headings(document: pathlib.Path) -> set[str]:
    lines = (line.lstrip("# ") for line in document.read_text(encoding="utf-8").splitlines() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize(("name", "most"), LINE_LIMITS.items())
def test_the_first_documents_are_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= most
