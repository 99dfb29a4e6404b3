"""``trtnode explain``: labels and cuts a model, builds nothing, and says why."""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import gc
import json

from rich.console import Console

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.files import check_output, write_atomically
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.names import SPARSE, left_out
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.partitioning import partition_model
from trtnode.engines.sparse.library import missing_reason
from trtnode.engines.sparse.survey import survey
from trtnode.partitioner.cut.labels import Allowance, PartitionOptions
from trtnode.partitioner.model.garbage import without_collections
from trtnode.serving.cli.option_values import CACHE_BYTES, cache_folder_from, shapes_from
from trtnode.serving.cli.terminal.progress_bar import showing_progress
from trtnode.serving.cli.terminal.report import print_report, sparse_layers
from trtnode.serving.errors import InvalidOptionError
from trtnode.serving.pages.explain_page import render_page


@without_collections()
def explain(arguments: argparse.Namespace) -> int:
    """Print the report, and write it as a page where one is asked for.

    Raises:
        PartitionError: The model can't be read.
        EngineError: There is no such engine, or the page can't be written.
    """
    atexit.register(gc.freeze)  # else the interpreter looks for garbage among all nodes when it ends
    if arguments.html:
        check_output(arguments.html, arguments.model)
    with showing_progress("Explaining"):
        partition, report = partition_model(arguments.model, options_from(arguments), cache=cache_from(arguments))
        sparse = survey(partition.graph)
        if arguments.html:
            write_atomically(arguments.html, render_page(partition, report, sparse).encode())
    if arguments.json:
        layers = {"sparse_layers": [dataclasses.asdict(layer) for layer in sparse]} if sparse else {}
        print(json.dumps({**report.as_json(), **layers}))
        return 0
    console = Console(emoji=False)
    print_report(report, console)
    if sparse:
        console.print(sparse_layers(sparse))
        if problem := missing_reason():
            console.print(f"These layers run dense here: {problem}", markup=False, highlight=False)
    if arguments.html:
        print(f"Wrote {arguments.html}: open it in a browser.")
    return 0


def cache_from(arguments: argparse.Namespace) -> EngineCache | None:
    """The engine cache that command-line arguments name, if any.

    Raises:
        InvalidOptionError: Its folder begins with the home folder of a user who has none.
    """
    return None if arguments.no_cache else EngineCache(cache_folder_from(arguments), CACHE_BYTES)


def options_from(arguments: argparse.Namespace) -> CompileOptions:
    """Translate command-line arguments.

    Raises:
        InvalidOptionError: A shape has another form, or two options exclude each other.
    """
    if arguments.engine == SPARSE and arguments.sparse_weights == "off":
        raise InvalidOptionError("--sparse-weights", "off leaves out the engine that --engine asks for")
    return CompileOptions(
        engine=arguments.engine,
        partition=PartitionOptions(
            native_ops=arguments.native_ops,
            native_nodes=tuple(arguments.native_nodes),
            engine_ops=arguments.engine_ops,
            min_segment_nodes=arguments.min_segment_nodes,
            max_segments=arguments.max_segments,
            connected=arguments.connected,
            allow=tuple(Allowance(name) for name in arguments.allow),
            freeze_initializers=arguments.freeze_initializers,
        ),
        samples=getattr(arguments, "inputs", None),
        measure=not getattr(arguments, "no_measure", False),
        tune=getattr(arguments, "tune", False),
        all_engines=getattr(arguments, "all_engines", False),
        sparse_weights=arguments.sparse_weights == "auto",
        shapes=shapes_from(arguments),
        build=BuildOptions(tensorrt=TensorRtOptions(targets=arguments.target)),
        without_rewrites=left_out(arguments.no_optimize),
    )
