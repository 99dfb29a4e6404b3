"""``trtnode explain``: labels and cuts a model, builds nothing, and says why."""

from __future__ import annotations

import argparse
import atexit
import gc
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engines import BuildOptions, CompileOptions, EngineCache, partition_model
from engines.artifact.files import check_output, write_atomically
from engines.backends.build_options import TensorRtOptions
from engines.runtime.reference_nodes import count_operators
from partitioner import Allowance, PartitionOptions, ReasonCode, Report
from partitioner.cut.segments import Segment
from partitioner.cut.what_if import FrozenWhatIf
from partitioner.model.garbage import without_collections
from serving.cli.option_values import CACHE_BYTES, cache_folder_from, shapes_from
from serving.cli.progress_bar import showing_progress
from serving.pages.explain_page import render_page

MOST_SEGMENTS = 100
"""Segments to print."""

MOST_SPLITS = 10
"""Splits to print; a graph cut to pieces has hundreds."""

MOST_OPERATORS = 4
"""Operators of one cause to name."""

LONGEST_PATH = 8
"""Nodes of a path to print whole."""

BUILT = "Segments are as compile has built and checked them here, with the same options."
NOT_BUILT = (
    "Nothing was built for this model with these options here. Only compile can tell which engines are refused, "
    "compute something else or don't pay; their nodes run natively."
)


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
    with showing_progress():
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
        measure=not getattr(arguments, "no_measure", False),
        tune=getattr(arguments, "tune", False),
        all_engines=getattr(arguments, "all_engines", False),
        shapes=shapes_from(arguments),
        build=BuildOptions(tensorrt=TensorRtOptions(targets=arguments.target)),
    )


def sentences(report: Report) -> str:
    """Describe a model in a few sentences: what runs where, and the measurement that decided it, if any."""
    in_engines = sum(len(s.nodes) for s in report.segments)
    text = (
        f"{report.model}: {report.nodes} nodes after clean-up; {report.engine} can take {report.supported_nodes}. "
        f"{in_engines} run in {_count(len(report.segments), 'segment')}, {len(report.native)} run natively. "
        f"{_count(report.crossing_tensors, 'tensor')} ({_bytes(report.boundary_bytes)}) cross."
    )
    if report.tuning is None:
        return text
    times = (f"{c['name']} {c['p50_ms']:.3g} ms" for c in report.tuning["candidates"])
    return f"{text} Measured here: {', '.join(times)}; {report.tuning['chosen']} is kept."


def memory_line(memory: Mapping[str, Any]) -> str:
    """Describe the memory of a model in a few figures."""
    boundary, native = memory["boundary"], memory["native"]
    parts = [f"weights {_bytes(memory['weight_bytes'])}"]
    if memory["engine_bytes"]:
        parts.append(f"engines {_bytes(memory['engine_bytes'])}")
    if boundary["tensors"]:
        parts.append(f"{_count(boundary['tensors'], 'boundary tensor')} {_reuse(boundary)}")
    if native["tensors"]:
        pattern = "" if memory["memory_pattern"] else ", allocated one by one"
        parts.append(f"{_count(native['tensors'], 'native tensor')} {_reuse(native)}{pattern}")
    return f"Memory: {'; '.join(parts)}."


def _reuse(plan: Mapping[str, Any]) -> str:
    """The bytes of tensors without reuse of memory, and with it."""
    alive = plan["arena_bytes"] or plan["peak_bytes"]
    return f"{_bytes(plan['total_bytes'])}, {_bytes(alive)} with reuse"


def print_report(report: Report, console: Console) -> None:
    """Print a report as tables for people."""
    console.print(sentences(report), markup=False)
    if report.labelled_by:
        console.print(f"Labelled by {report.labelled_by}", markup=False)
    if report.compiled_before is not None:
        console.print(BUILT if report.compiled_before else NOT_BUILT, markup=False)
    referred = [node.op_type for node in report.native if node.code == ReasonCode.NO_KERNEL]
    if referred:
        console.print(
            f"onnx.reference, which is slow, runs {count_operators(referred)}: neither ONNX Runtime nor an engine has "
            "a kernel for that. To serve the model, give it `reference: true`.",
            markup=False,
        )
    if report.memory is not None:
        console.print(memory_line(report.memory), markup=False)
    if report.segments:
        console.print(_segments(report.segments[:MOST_SEGMENTS]))
    _print_rest(console, len(report.segments) - MOST_SEGMENTS)
    if report.native:
        console.print(_native(report))
    for split in report.splits[:MOST_SPLITS]:
        console.print(f"{split.between[0]} | {split.between[1]}: kept apart by {_path(split.witness)}", markup=False)
    _print_rest(console, len(report.splits) - MOST_SPLITS)
    for group in report.split_groups:
        console.print(f"A {group.kind} is in more than one segment: {_path(group.nodes)}", markup=False)
    if report.what_if:
        console.print(_what_if(report))
    if report.what_if_frozen:
        console.print(_frozen(report.what_if_frozen, len(report.segments)), markup=False)


def _print_rest(console: Console, number: int) -> None:
    if number > 0:
        console.print(f"... and {number} more; --json has all of them.")


def _segments(segments: Sequence[Segment]) -> Table:
    table = Table("segment", "nodes", "from", "to", "reads", "writes", title="Segments", title_justify="left")
    for segment in segments:
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
    """Native nodes by cause: one sentence about nodes of several operators is one row."""
    operators: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node in report.native:
        operators[node.code, node.detail].add(node.op_type)
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    details: dict[tuple[str, str, str], str] = {}
    for node in report.native:
        together = sorted(operators[node.code, node.detail])
        key = (node.code, _listed(together), node.detail if len(together) > 1 else "")
        groups[key].append(node.node)
        details.setdefault(key, node.detail)
    table = Table("reason", "operator", "nodes", "for example", "why", title="Native nodes", title_justify="left")
    for key, nodes in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1])):
        table.add_row(key[0], key[1], str(len(nodes)), escape(nodes[0]), escape(details[key]))
    return table


def _listed(operators: Sequence[str]) -> str:
    others = f" and {len(operators) - MOST_OPERATORS} more" if len(operators) > MOST_OPERATORS else ""
    return ", ".join(operators[:MOST_OPERATORS]) + others


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
