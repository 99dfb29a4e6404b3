"""Runs TensorRT on the GPU of this machine, once through everything: ``python -m scripts.gpu_day``.

Each step is a process with a time limit. After each, ``gpu_day.json`` and ``gpu_day.md``, a table for docs/gpu.md, are
written anew, so a machine that goes away costs one step. A refusal is a result: later steps run all the same. It needs
a driver, and trtnode with its tests; ``--wheels`` installs them from files.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

ROOT = pathlib.Path(__file__).parents[2]
ADAPTER = ROOT / "tests" / "workshop" / "tensorrt_8" / "library"
LAST_LINES = 5
NETWORKS = ("digits", "mobilenetv2", "resnet50", "small-bert")
QUANTIZED = ("digits", "resnet50")
LOADS = [(workers, network) for network in ("digits", "resnet50") for workers in (1, 4, 8)]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A part of the day.

    Attributes:
        name: The function and its arguments, for ``scripts.gpu_day.step``.
        limit_s: Time after which it is ended.
    """

    name: str
    limit_s: float


STEPS = (
    Step("machine", 20),
    Step("one_node", 60),
    Step("gpu_check", 120),
    Step("native_nodes_between", 60),
    Step("two_profiles", 60),
    Step("unknown_size", 60),
    Step("measure digits fp32", 60),
    Step("measure digits fp16", 60),
    Step("cuda_graphs", 60),
    Step("sign", 60),
    Step("load_signed", 30),
    Step("memory", 60),
    Step("serve", 90),
    *(Step(f"measure {name} {precision}", 120) for name in NETWORKS[1:] for precision in ("fp32", "fp16")),
    *(Step(f"measure {name} int8", 120) for name in QUANTIZED),
    *(Step(f"workers {workers} {network}", 90) for workers, network in LOADS),
)
"""Those that decide the most, and take the least, come first."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps; returns 1 if one of them found no result."""
    options = _options(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    python = _install(options.wheels, options.out) if options.wheels else sys.executable
    deadline = time.monotonic() + options.budget
    done: dict[str, Any] = {}
    for step in [step for step in STEPS if not options.only or step.name in options.only]:
        left_s = deadline - time.monotonic()
        limited = dataclasses.replace(step, limit_s=min(step.limit_s, left_s))
        done[step.name] = _run(limited, python, options) if left_s > 0 else {"error": "left out: no time was left"}
        _write(done, options.out)
        print(f"{step.name}: {json.dumps(done[step.name])}", flush=True)
    return 1 if any("error" in found for found in done.values()) else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.gpu_day", description=__doc__.splitlines()[0])
    for name, type_, use in (
        ("--tensorrt-8", _bindings, "its package tensorrt is release 8.6, and stands for 10.3"),
        ("--wheels", _folder, "wheels and sources of all packages, to be installed first"),
        ("--out", pathlib.Path, "where results go; default: build/gpu_day"),
    ):
        parser.add_argument(name, type=type_, metavar="FOLDER", help=use)
    names = [step.name for step in STEPS]
    parser.add_argument("--only", action="append", choices=names, metavar="STEP", help="such as 'measure digits fp16'")
    parser.add_argument("--budget", type=float, default=360, metavar="S", help="of all steps; default: 360")
    parser.set_defaults(out=ROOT / "build" / "gpu_day")
    return parser.parse_args(argv)


def _folder(text: str) -> pathlib.Path:
    path = pathlib.Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return path


def _bindings(text: str) -> pathlib.Path:
    path = _folder(text)
    if not (path / "tensorrt" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text} has no package tensorrt; name the folder that holds it")
    return path


def _install(wheels: pathlib.Path, out: pathlib.Path) -> str:
    """Make an environment of the files of a folder; returns its Python."""
    venv.create(out / "venv", with_pip=True, system_site_packages=True)
    python = str(out / "venv" / "bin" / "python")
    files = [str(path) for path in sorted(wheels.iterdir()) if path.name.endswith((".whl", ".tar.gz"))]
    install = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", *files]
    if subprocess.run(install, check=False).returncode:
        sys.exit(f"The files of {wheels} can't be installed; pip's words are above. Put what is missing there.")
    return python


def _run(step: Step, python: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a step in a process of its own, and end what it has left."""
    started = time.monotonic()
    command = [python, "-m", "scripts.gpu_day.step", str(options.out), *step.name.split()]
    path = options.out / f"{step.name.replace(' ', '_')}.log"
    with path.open("w+") as log, _started(command, options, log) as child:
        try:
            told, _ = child.communicate(timeout=step.limit_s)
            found = {"result": json.loads(told.splitlines()[-1])} if child.returncode == 0 else _failure(child, log)
        except subprocess.TimeoutExpired:
            found = {"error": f"ended after {step.limit_s:.3g} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return {"seconds": round(time.monotonic() - started, 1), **found}


def _started(command: Sequence[str], options: argparse.Namespace, log: TextIO) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=_environment(options),
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    )


def _failure(child: subprocess.Popen[str], log: TextIO) -> dict[str, Any]:
    log.seek(0)
    return {"error": f"exit code {child.returncode}: {' | '.join(log.read().splitlines()[-LAST_LINES:])}"}


def _environment(options: argparse.Namespace) -> Mapping[str, str]:
    adapter = [str(ADAPTER)] if options.tensorrt_8 else []
    paths = [*adapter, str(ROOT), str(ROOT / "tests" / "workshop"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TENSORRT_8": str(options.tensorrt_8 and options.tensorrt_8.resolve()),
        "TRTNODE_ALL_ENGINES": "1",
        "XDG_CACHE_HOME": str((options.out / "cache").resolve()),
    }


def _write(done: Mapping[str, Any], out: pathlib.Path) -> None:
    report = json.dumps({"date": time.strftime("%Y-%m-%d"), "steps": done}, indent=2)
    for name, text in (("gpu_day.json", report), ("gpu_day.md", "\n".join(_table(done)) + "\n")):
        (out / "unfinished").write_text(text)
        (out / "unfinished").replace(out / name)


def _table(done: Mapping[str, Any]) -> Iterator[str]:
    """The text for docs/gpu.md."""
    yield f"{time.strftime('%Y-%m-%d')}; one run each; times are medians in ms.\n"
    yield "| tried | seen |\n|---|---|"
    for name, found in done.items():
        seen = _words(found.get("error") or found["result"])
        yield f"| {name.replace('_', ' ')} ({found.get('seconds', 0)} s) | {seen} |"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        parts = {name: f"({_words(one)})" if isinstance(one, dict) else _words(one) for name, one in value.items()}
        return "; ".join(map(" ".join, parts.items()))
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
