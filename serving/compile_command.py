"""``trtnode compile``: builds engines for a model and writes it with them inside."""

from __future__ import annotations

import argparse
import json
import time

from rich.console import Console

from engines import CompiledModel, EngineCache, compile_model
from engines.errors import OutputFileError
from serving.explain_command import options_from, print_report

CACHE_BYTES = 20 * 10**9


def compile_(arguments: argparse.Namespace) -> int:
    """Compile and write.

    Raises:
        PartitionError: The model can't be read.
        EngineError: It can't be loaded natively, or the result can't be written.
        NotBuiltYetError: A precision is not available yet.
    """
    start = time.perf_counter()
    if not arguments.output.parent.is_dir():
        raise OutputFileError(arguments.output, "there is no such folder")
    cache = None if arguments.no_cache else EngineCache(arguments.cache.expanduser(), CACHE_BYTES)
    compiled = compile_model(arguments.model, options_from(arguments), cache=cache)
    compiled.save(arguments.output)
    facts = _facts(arguments, compiled, time.perf_counter() - start)
    if arguments.json:
        print(json.dumps(facts))
    else:
        _print_facts(facts, compiled, Console())
    return 0


def _facts(arguments: argparse.Namespace, compiled: CompiledModel, seconds: float) -> dict[str, object]:
    return {
        "output": str(arguments.output),
        "engine": compiled.engine,
        "precision": {"asked": arguments.precision, "effective": compiled.precision_effective},
        "segments": len(compiled.report.segments),
        "engines_built": compiled.engines_built,
        "engines_cached": compiled.engines_cached,
        "engine_bytes": compiled.engine_bytes,
        "native_fallback": compiled.native_fallback,
        "source_bytes": arguments.model.stat().st_size,
        "file_bytes": arguments.output.stat().st_size,
        "seconds": round(seconds, 3),
        "report": compiled.report.as_json(),
    }


def _print_facts(facts: dict[str, object], compiled: CompiledModel, console: Console) -> None:
    print_report(compiled.report, console)
    console.print(
        f"Wrote {facts['output']} in {facts['seconds']} s: {compiled.engines_built} engines built, "
        f"{compiled.engines_cached} from the cache, computing in {compiled.precision_effective}."
    )
    if not compiled.native_fallback:
        console.print("ONNX Runtime refuses this model: only its engines run it, on machines like this one.")
    elif compiled.engine_bytes:
        console.print(
            f"{facts['file_bytes']:,} bytes, {compiled.engine_bytes:,} of them engines. Weights that engines use stand "
            "twice in the file: in the engine, and as initializers for machines where it can't run."
        )
