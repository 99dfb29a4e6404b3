"""Two steps of building or installing the package: the sparse kernels, and the addresses of the project.

Without a C compiler, the package has no sparse kernels and says so; everything else works.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import urllib.parse
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SOURCES = (
    "convolution.c",
    "depthwise.c",
    "matrix.c",
    "operators.c",
    "panel.c",
    "product.c",
    "recurrent.c",
    "tensors.c",
)

FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,nodelete", "-Wall", "-Wextra")


class KernelBuildHook(BuildHookInterface[Any]):
    """Puts ``trtnode/engines/sparse/kernels.so`` into the wheel, or beside its sources for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  (the hook's signature)
        """Compile; a compiler that fails is told on stderr, and the package is built without kernels."""
        folder = pathlib.Path(self.root, "trtnode", "engines", "sparse")
        library = folder / "kernels.so"
        if not _is_current(library) and not _compile(library):
            library.unlink(missing_ok=True)
            return
        build_data["artifacts"].append("trtnode/engines/sparse/kernels.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _is_current(library: pathlib.Path) -> bool:
    if not library.is_file() or os.environ.get("TRTNODE_NO_COMPILER"):
        return False
    changed = max(path.stat().st_mtime for path in (library.parent / "kernels").iterdir())
    return library.stat().st_mtime > changed


def _compile(library: pathlib.Path) -> bool:
    """Write the library, in one step: a process may have the one of before in use."""
    given = os.environ.get("CC")  # alone: another may compile for another machine
    compiler = next(filter(None, map(shutil.which, [given] if given else ["gcc", "cc"])), None)
    if compiler is None or os.environ.get("TRTNODE_NO_COMPILER"):
        print("trtnode: there is no C compiler (gcc), so engine sparse is left out", file=sys.stderr)
        return False
    sources = [str(library.parent / "kernels" / name) for name in SOURCES]
    made = library.with_suffix(f".{os.getpid()}.so")
    done = subprocess.run([compiler, *FLAGS, *sources, "-o", str(made), "-lpthread", "-lm"], check=False)  # noqa: S603
    if done.returncode:
        print("trtnode: the sparse kernels do not compile here, so engine sparse is left out", file=sys.stderr)
        return False
    made.replace(library)
    return True


class UrlsHook(MetadataHookInterface):
    """Takes the project's URLs from where the checkout came from; none if that is no https address.

    So whoever publishes a copy of the project publishes that copy's address. A source archive keeps its own.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``urls``, without the name and password that the address may have in it."""
        command = ["git", "-C", self.root, "config", "--get", "remote.origin.url"]
        known = pathlib.Path(self.root, ".git").exists() and shutil.which("git")
        origin = subprocess.run(command, check=False, capture_output=True, text=True).stdout if known else ""  # noqa: S603
        address = urllib.parse.urlsplit(origin.strip())
        metadata["urls"] = {}
        if address.scheme == "https":
            source = f"https://{address.netloc.rpartition('@')[2]}{address.path.removesuffix('.git')}"
            metadata["urls"] = {"Source": source, "Issues": f"{source}/issues"}
