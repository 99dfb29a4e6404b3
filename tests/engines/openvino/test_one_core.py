"""Engines in a process that has a single core, as in small containers."""

from __future__ import annotations

import os
import pathlib

from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.compiler import compile_model

DIGITS = pathlib.Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


def test_engines_of_later_models_run_once_earlier_ones_were_freed() -> None:
    options = CompileOptions(engine="openvino", all_engines=True)

    with SubprocessWorker(cores=[min(os.sched_getaffinity(0))]) as worker:
        compiled = compile_model(DIGITS, options, worker=worker)

    assert len(compiled.report.segments) == 1
