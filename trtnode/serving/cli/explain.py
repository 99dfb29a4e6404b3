"""``trtnode explain``: labels and cuts a model, builds nothing, and says why."""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import gc
import json

from trtnode.engines.artifact.checksum import check_checksum
from trtnode.engines.artifact.files import check_output, write_atomically
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.compiled_files import listed_engines
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.errors import AlreadyCompiledError
from trtnode.engines.sparse.library import missing_reason
from trtnode.engines.sparse.survey import survey
from trtnode.partitioner.model.garbage import without_collections
from trtnode.partitioner.model.loading import load_model
from trtnode.serving.cli.compile_flags import options_from
from trtnode.serving.cli.option_values import cache_from
from trtnode.serving.cli.terminal.console import open_console
from trtnode.serving.cli.terminal.progress_bar import showing_progress
from trtnode.serving.cli.terminal.report import print_report
from trtnode.serving.pages.explain_page import render_page

ENGINE_FIELDS = ("backend", "version", "built_for", "precision")
"""Facts about an engine to print, in this order."""


@without_collections()
def explain(arguments: argparse.Namespace) -> int:
    """Print the report, and write it as a page where one is asked for; of a compiled file, list its engines.

    Raises:
        PartitionError: The model can't be read.
        EngineError: There is no such engine, or the page can't be written.
    """
    atexit.register(gc.freeze)  # else the interpreter looks for garbage among all nodes when it ends
    if arguments.html:
        check_output(arguments.html, arguments.model)
    with showing_progress("Explaining"):
        try:
            partition, report = partition_model(arguments.model, options_from(arguments), cache=cache_from(arguments))
        except AlreadyCompiledError:
            if arguments.html:
                raise
            return _list_engines(arguments)
        sparse = survey(partition.graph)
        if arguments.html:
            write_atomically(arguments.html, render_page(partition, report, sparse).encode())
    if arguments.json:
        layers = {"sparse_layers": [dataclasses.asdict(layer) for layer in sparse]} if sparse else {}
        print(json.dumps({**report.as_json(), **layers}))
        return 0
    console = open_console()
    print_report(report, console, sparse)
    if sparse and (problem := missing_reason()):
        console.print(f"Layers with zeros run dense here: {problem}", markup=False, highlight=False)
    if arguments.html:
        print(f"Wrote {arguments.html}: open it in a browser.")
    return 0


def _list_engines(arguments: argparse.Namespace) -> int:
    cache = cache_from(arguments)
    engines = list(listed_engines(load_model(arguments.model, check=check_checksum), cache.trust if cache else Trust()))
    if arguments.json:
        print(json.dumps({"model": arguments.model.name, "engines": engines}))
        return 0
    for engine in engines:
        built = " ".join(f"{name} {engine[name]!r}" for name in ENGINE_FIELDS if name in engine)
        print(f"{engine['segment']}: {built}: {engine['problem'] or 'runs here'}")
    return 0
