"""``trtnode explain``: labels and cuts a model, builds nothing, and says why."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engines import BuildOptions, CompileOptions, EngineCache, partition_model
from engines.artifact.files import check_output, write_atomically
from engines.backends.build_options import TensorRtOptions
from partitioner import Allowance, PartitionOptions, Report
from partitioner.cut.what_if import FrozenWhatIf
from serving.cli.option_values import CACHE_BYTES, cache_folder_from, shapes_from
from serving.pages.explain_page import render_page

MOST_SPLITS = 10
"""Splits to print; a graph cut to pieces has hundreds."""

LONGEST_PATH = 8
"""Nodes of a path to print whole."""


def explain(arguments: argparse.Namespace) -> int:
    """Print the report, and write it as a page where one is asked for.

    Raises:
        PartitionError: The model can't be read.
        EngineError: There is no such engine, or the page can't be written.
    """
    if arguments.html:
        check_output(arguments.html, arguments.model)
    partition, report = partition_model(arguments.model, options_from(arguments), cache=cache_from(arguments))
    if arguments.html:
        write_atomically(arguments.html, render_page(partition, report).encode())
    if arguments.json:
        print(json.dumps(report.as_json()))
        return 0
    print_report(report, Console())
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
        InvalidOptionError: A shape has another form.
    """
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
        tune=getattr(arguments, "tune", False),
        shapes=shapes_from(arguments),
        build=BuildOptions(tensorrt=TensorRtOptions(targets=arguments.target)),
    )


def print_report(report: Report, console: Console) -> None:
    """Print a report as tables for people."""
    in_engines = sum(len(s.nodes) for s in report.segments)
    console.print(
        f"[bold]{escape(report.model)}[/bold]: {report.nodes} nodes after clean-up; {report.engine} can take "
        f"{report.supported_nodes}. {in_engines} run in {_count(len(report.segments), 'segment')}, "
        f"{len(report.native)} run natively. {_count(report.crossing_tensors, 'tensor')} "
        f"({_bytes(report.boundary_bytes)}) cross."
    )
    if report.labelled_by:
        console.print(f"Labelled by {report.labelled_by}", markup=False)
    if report.segments:
        console.print(_segments(report))
    if report.native:
        console.print(_native(report))
    for split in report.splits[:MOST_SPLITS]:
        console.print(f"{split.between[0]} | {split.between[1]}: kept apart by {_path(split.witness)}", markup=False)
    if len(report.splits) > MOST_SPLITS:
        console.print(f"... and {len(report.splits) - MOST_SPLITS} more; --json has all of them.")
    for group in report.split_groups:
        console.print(f"A {group.kind} is in more than one segment: {_path(group.nodes)}", markup=False)
    if report.what_if:
        console.print(_what_if(report))
    if report.what_if_frozen:
        console.print(_frozen(report.what_if_frozen, len(report.segments)), markup=False)


def _segments(report: Report) -> Table:
    table = Table("segment", "nodes", "from", "to", "reads", "writes", title="Segments", title_justify="left")
    for segment in report.segments:
        table.add_row(
            segment.name,
            str(len(segment.nodes)),
            escape(segment.nodes[0].name),
            escape(segment.nodes[-1].name),
            _count(len(segment.inputs), "tensor"),
            _count(len(segment.outputs), "tensor"),
        )
    return table


def _native(report: Report) -> Table:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    details: dict[tuple[str, str], str] = {}
    for node in report.native:
        groups[node.code, node.op_type].append(node.node)
        details.setdefault((node.code, node.op_type), node.detail)
    table = Table("reason", "operator", "nodes", "for example", "why", title="Native nodes", title_justify="left")
    for (code, op_type), nodes in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1])):
        table.add_row(code, op_type, str(len(nodes)), escape(nodes[0]), escape(details[code, op_type]))
    return table


def _what_if(report: Report) -> Table:
    table = Table("if the engine took", "nodes", "segments", "estimated saving", title="What if", title_justify="left")
    for one in report.what_if:
        segments = f"{one.segments} instead of {len(report.segments)}"
        table.add_row(one.op_type, str(one.nodes), segments, f"{one.saved_ms:.3f} ms")
    return table


def _frozen(frozen: FrozenWhatIf, segments: int) -> str:
    one = frozen.initializers == 1
    changed = "this initializer were a constant" if one else "these initializers were constants"
    return (
        f"{_count(frozen.nodes, 'node')} read {_count(frozen.initializers, 'initializer')} that a request may replace. "
        f"If {changed} (--freeze-initializers): {_count(frozen.segments, 'segment')} instead of {segments}, "
        f"estimated saving {frozen.saved_ms:.3f} ms."
    )


def _path(nodes: Sequence[str]) -> str:
    """The ends of a path, and how much is between them."""
    if len(nodes) <= LONGEST_PATH:
        return " > ".join(nodes)
    return f"{nodes[0]} > {nodes[1]} > ... {len(nodes) - 4} more ... > {nodes[-2]} > {nodes[-1]}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _bytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"
