"""``trtnode explain``: labels and cuts a model, builds nothing, and says why."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict

from rich.console import Console
from rich.table import Table

from engines import BuildOptions, CompileOptions, partition_model
from partitioner import PartitionOptions, Report
from serving.errors import NotBuiltYetError


def explain(arguments: argparse.Namespace) -> int:
    """Print the report.

    Raises:
        PartitionError: The model can't be read.
        EngineError: There is no such engine.
    """
    _, report = partition_model(arguments.model, options_from(arguments))
    if arguments.json:
        print(json.dumps(report.as_json()))
    else:
        print_report(report, Console())
    return 0


def options_from(arguments: argparse.Namespace) -> CompileOptions:
    """Translate command-line arguments.

    Raises:
        NotBuiltYetError: A precision other than fp32 is asked for.
    """
    precision = getattr(arguments, "precision", "fp32")
    if precision != "fp32":
        raise NotBuiltYetError(f"--precision {precision}", "Use fp32.")
    return CompileOptions(
        engine=arguments.engine,
        build=BuildOptions(precision=precision),
        partition=PartitionOptions(
            native_ops=arguments.native_ops,
            native_nodes=tuple(arguments.native_nodes),
            engine_ops=arguments.engine_ops,
            min_segment_nodes=arguments.min_segment_nodes,
        ),
        samples=getattr(arguments, "inputs", None),
        tune=getattr(arguments, "tune", False),
    )


def print_report(report: Report, console: Console) -> None:
    """Print a report as tables for people."""
    in_engines = sum(len(s.nodes) for s in report.segments)
    console.print(
        f"[bold]{report.model}[/bold]: {report.nodes} nodes after clean-up; {report.engine} can take "
        f"{report.supported_nodes}. {in_engines} run in {len(report.segments)} "
        f"segment{'' if len(report.segments) == 1 else 's'}, {len(report.native)} run natively."
    )
    if report.segments:
        console.print(_segments(report))
    if report.native:
        console.print(_native(report))
    for split in report.splits:
        console.print(f"{split.between[0]} | {split.between[1]}: kept apart by {' > '.join(split.witness)}")


def _segments(report: Report) -> Table:
    table = Table("segment", "nodes", "from", "to", "reads", "writes", title="Segments", title_justify="left")
    for segment in report.segments:
        table.add_row(
            segment.name,
            str(len(segment.nodes)),
            segment.nodes[0].name,
            segment.nodes[-1].name,
            _count(len(segment.inputs)),
            _count(len(segment.outputs)),
        )
    return table


def _native(report: Report) -> Table:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    details: dict[tuple[str, str], str] = {}
    for node in report.native:
        groups[node.code, node.op_type].append(node.node)
        details.setdefault((node.code, node.op_type), node.detail)
    table = Table("reason", "operator", "nodes", "for example", "why", title="Native nodes", title_justify="left")
    for (code, op_type), nodes in sorted(groups.items(), key=lambda item: -len(item[1])):
        table.add_row(code, op_type, str(len(nodes)), nodes[0], details[code, op_type])
    return table


def _count(number: int) -> str:
    return f"{number} tensor{'' if number == 1 else 's'}"
