"""``trtnode compile``: builds engines for a model and writes it with them inside."""

from __future__ import annotations

import argparse
import glob
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.files import check_output
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.options import Choice, CompileOptions
from trtnode.engines.compile.compiled_files import compile_for_each
from trtnode.engines.compile.processor_times import ProcessorTimes, processor_s
from trtnode.partitioner.cut.report import Report
from trtnode.partitioner.wording import counted
from trtnode.serving.cli.compile_flags import options_from
from trtnode.serving.cli.option_values import cache_from
from trtnode.serving.cli.terminal.console import open_console
from trtnode.serving.cli.terminal.precision import missed_precision, print_precision
from trtnode.serving.cli.terminal.progress_bar import showing_progress
from trtnode.serving.cli.terminal.report import print_report
from trtnode.serving.errors import InvalidOptionError, NotFasterError

NOT_MEASURED = "nothing was measured"
"""Said where options ask for a measurement: no engine was built, or native execution could not be timed beside it."""

WORTH_S = 0.05
"""Phases of a compilation that take less processor time aren't printed."""


def compile_(arguments: argparse.Namespace) -> int:
    """Compile and write.

    Raises:
        PartitionError: The model can't be read.
        EngineError: It can't be loaded natively, a precision can't be had, or the result can't be written there.
        InvalidOptionError: A precision rule or a shape has another form, or two options exclude each other.
        NotFasterError: The measurement keeps no engine, and that is to fail; the file is written.
    """
    start = time.perf_counter()
    check_output(arguments.output, arguments.model)
    others = arguments.engines[1:]
    options = options_from(arguments)
    if arguments.fail_if_not_faster and (others or not options.measures or options.engine == NATIVE):
        problem = "nothing would be measured. Leave out --no-measure, --all-engines, engine native and several engines"
        raise InvalidOptionError("--fail-if-not-faster", problem)
    with showing_progress("Compiling"):
        each = compile_for_each(arguments.model, options, arguments.engines, cache=cache_from(arguments))
        compiled = each[0]
    stripped = arguments.strip_fallback and compiled.native_fallback and compiled.engine_bytes > 0
    if stripped:
        compiled = compiled.without_fallback()
    if arguments.nan is not None:
        compiled.answer_nan_by(arguments.nan)
    times = ProcessorTimes(compiled.report.processor_seconds)
    with times.during("write"):
        compiled.save(arguments.output)
    facts = {**_facts(arguments, options, compiled, time.perf_counter() - start), "stripped": stripped}
    facts["processor_seconds"] = {phase: round(s, 3) for phase, s in {**times.seconds, "all": processor_s()}.items()}
    facts["choice"] = _choice(options, compiled.report) if not others else Choice.ALL.value
    facts["unchecked"] = [one.report.unchecked for one in each if one.report.unchecked]
    if arguments.json:
        print(json.dumps(facts))
    else:
        _print_facts(facts, compiled, open_console())
    if arguments.fail_if_not_faster and (compiled.report.tuning is None or not compiled.engine_bytes):
        raise NotFasterError(arguments.output, measured=compiled.report.tuning is not None)
    return 0


def _facts(
    arguments: argparse.Namespace, options: CompileOptions, compiled: CompiledModel, seconds: float
) -> dict[str, Any]:
    return {
        "output": str(arguments.output),
        "engine": ",".join(arguments.engines if len(arguments.engines) > 1 else (compiled.engine,)),
        "precision": compiled.report.precision
        or {"asked": options.precision, "effective": compiled.precision_effective},
        "segments": len(compiled.report.segments),
        "engines_built": compiled.engines_built,
        "engines_cached": compiled.engines_cached,
        "engine_bytes": compiled.engine_bytes,
        "native_fallback": compiled.native_fallback,
        "reference_nodes": len(compiled.reference_nodes),
        "source_bytes": arguments.model.stat().st_size,
        "file_bytes": arguments.output.stat().st_size,
        "seconds": round(seconds, 3),
        "report": compiled.report.as_json(),
    }


def _choice(options: CompileOptions, report: Report) -> str:
    """The rule by which engines stayed."""
    unmeasured = options.measures and report.tuning is None
    return NOT_MEASURED if unmeasured else options.choice.value


def _print_facts(facts: Mapping[str, Any], compiled: CompiledModel, console: Console) -> None:
    if missed := missed_precision(facts["precision"]):
        console.print(missed, markup=False)
    print_report(compiled.report, console)
    if compiled.report.precision is not None:
        print_precision(compiled.report.precision, console)
    others = f"{compiled.engines_cached} from the cache" if compiled.engine_bytes else "none kept"
    console.print(
        f"Wrote {facts['output']} in {facts['seconds']} s: {counted(compiled.engines_built, 'engine')} built, "
        f"{others}, computing in {compiled.precision_effective}; {facts['choice']}."
    )
    phases = sorted(facts["processor_seconds"].items(), key=lambda phase: -phase[1])
    console.print(f"Seconds of processor time: {', '.join(f'{phase} {s:.1f}' for phase, s in phases if s >= WORTH_S)}.")
    for reason in facts["unchecked"]:
        console.print(f"Engines were built but not run: {reason}.", markup=False)
    if facts["stripped"]:
        console.print("Only engines run this file, on machines like this one: its native fallback is left out.")
    elif not compiled.native_fallback:
        console.print("ONNX Runtime refuses this model: only its engines run it, on machines like this one.")
    elif compiled.engine_bytes:
        output = pathlib.Path(facts["output"])
        written = sum(file.stat().st_size for file in output.parent.glob(f"{glob.escape(output.name)}*"))
        console.print(
            f"{written:,} bytes on disk, with engines of {compiled.engine_bytes:,}: weights are shared with engines."
        )
