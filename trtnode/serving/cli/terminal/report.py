"""Prints reports for people: a verdict, and where each node runs and why."""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import rich.table
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column
from rich.text import Text

from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.registry import abilities_of
from trtnode.engines.runtime.reference_nodes import count_operators
from trtnode.engines.sparse.survey import LayerSparsity
from trtnode.engines.tuning.candidates import ALL_ENGINES, NO_ENGINE
from trtnode.engines.tuning.decision import is_provisional
from trtnode.partitioner.cut.labels import ReasonCode
from trtnode.partitioner.cut.report import NativeNode, Report
from trtnode.partitioner.graph.view import expected_bytes
from trtnode.partitioner.wording import counted
from trtnode.serving.pages.explain_tables import Cell, Table, measured_times, tables_of

MOST_OPERATORS = 4
"""Operators of one cause to name."""

MOST_CAUSES = 3
"""Sentences that differ only in names and numbers are printed as one cause, unless there are as few as this."""

HEADINGS = {
    "segments": "Segments, with estimated times",
    "rewrites": "Rewritten",
    "zeros": "Zeros in weights",
    "splits": "Segments that a path keeps apart",
}
"""The headings of the tables, by name."""

BUILT = "Segments are as compile has built and checked them here, with the same options."
NOT_BUILT = (
    "Nothing was built for this model with these options here. Only compile can tell which engines are refused, "
    "compute something else or don't pay; their nodes run natively."
)


_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")

FRESH = datetime.timedelta(minutes=10)
"""Figures of a measurement that is older are of an earlier command."""

UNSIZED = "Nothing was measured, and dimensions without a size count as 1; --shapes gives them one."
"""Basis of an estimate of a model whose sizes are unknown."""

REMEDIES: Mapping[str, str] = {
    ReasonCode.CHECK_TIMED_OUT: "compile the model again when this machine is less busy.",
    ReasonCode.DATA_DEPENDENT: "--allow data-dependent lets TensorRT take nodes whose output shapes depend on values.",
    ReasonCode.DYNAMIC_SHAPE: "give the inputs sizes with --shapes NAME:MIN,OPT,MAX.",
    ReasonCode.NO_KERNEL: "to serve the model, give it `reference: true`.",
    ReasonCode.OUT_OF_MEMORY: "compile the model again with more memory.",
    ReasonCode.TOO_SMALL: "a lower --min-segment-nodes lets smaller segments have engines.",
    ReasonCode.UNKNOWN_SHAPE: "give the inputs sizes with --shapes NAME:MIN,OPT,MAX.",
    ReasonCode.USER_EXCLUDED: "leave out the options that keep nodes native.",
}
"""Remedies for the nodes that run natively for a reason."""


def sentences(report: Report) -> str:
    """Describe what of a model runs where, in a few sentences."""
    in_engines = sum(len(s.nodes) for s in report.segments)
    return (
        f"{report.model}: {counted(report.nodes, 'node')} after clean-up; {report.engine} can take "
        f"{report.supported_nodes}. {in_engines} {_run(in_engines)} in {counted(len(report.segments), 'segment')}, "
        f"{len(report.native)} {_run(len(report.native))} natively. {counted(report.crossing_tensors, 'tensor')} "
        f"({_sizes(report)}) {'crosses' if report.crossing_tensors == 1 else 'cross'}."
    )


def _run(number: int) -> str:
    return "runs" if number == 1 else "run"


def print_report(report: Report, console: Console, sparse: Sequence[LayerSparsity] = ()) -> None:
    """Print a verdict, then the details; ``sparse`` has the layers with many zeros."""
    for line in verdict_of(report):
        console.print(line, markup=False)
    console.print()
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
    if (memory := report.memory) is not None:
        engines = f"; engines {_bytes(memory['engine_bytes'])}" if memory["engine_bytes"] else ""
        console.print(f"Memory: weights {_bytes(memory['weight_bytes'])}{engines}.", markup=False)
    for line in report.states.sentences() if report.states else ():
        console.print(f"With `state: auto`, a server {line}." if line.startswith("keeps") else f"{line}.", markup=False)
    _print_native(report, console)
    for name, table in tables_of(report.as_json(), sparse).items():
        _print_table(HEADINGS[name], table, console)
    if report.tuning is not None and report.tuning["segments"]:
        console.print(_measured_segments(report.tuning["segments"]))


def _print_table(heading: str, table: Table, console: Console) -> None:
    """Print the rows that a page shows at first. Long names are broken, not cut."""
    columns = (Column(one.label, overflow="fold", justify="right" if one.number else "left") for one in table.columns)
    drawn = rich.table.Table(*columns, title=heading, title_justify="left")
    for row in (*table.shown, *filter(None, [table.sums])):
        drawn.add_row(*(escape(_text(cell)) for cell in row))
    console.print(drawn)
    if table.folded:
        console.print(f"... and {len(table.folded)} more; --json has all of them.")


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    kind, *values = cell
    return " > ".join(values[1:]) if kind == "path" else ", ".join(values)


def _measured_segments(segments: Iterable[Mapping[str, Any]]) -> rich.table.Table:
    """The segments that were measured alone."""
    title = "Measured: segments of the minimum cut"
    table = rich.table.Table("segment", "engine ms", "native ms", "", title=title, title_justify="left")
    for one in segments:
        kept = "kept" if one["kept"] else "native"
        table.add_row(one["name"], f"{one['engine_ms']:.4f}", f"{one['native_ms']:.4f}", kept)
    return table


def _print_native(report: Report, console: Console) -> None:
    if report.native:
        console.print("Native nodes", style="italic")
    for nodes, detail in native_causes(report):
        console.print(nodes, markup=False)
        if detail:
            console.print(Padding(Text(detail), (0, 0, 0, 4), expand=False))


def native_causes(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the nodes that run natively for one cause, and the cause, which is empty where the verdict says it."""
    for nodes in sorted(_causes(report.native), key=lambda nodes: (nodes[0].code, -len(nodes))):
        listed = _listed(sorted({node.op_type for node in nodes}))
        example = f", such as {nodes[0].node}" if len(nodes) > 1 else f": {nodes[0].node}"
        detail = "" if _is_measured(report, nodes[0]) else nodes[0].detail
        yield f"{nodes[0].code}: {counted(len(nodes), 'node')} ({listed}){example}", detail


def _is_measured(report: Report, node: NativeNode) -> bool:
    """Return whether the times of the measurement are the reason of a node, and stand elsewhere."""
    return report.tuning is not None and node.code == ReasonCode.NOT_FASTER


def _causes(native: Iterable[NativeNode]) -> Iterator[list[NativeNode]]:
    """Yield native nodes of one cause. Many sentences that differ only in names and numbers are one."""
    sentences: dict[tuple[str, str], dict[str, list[NativeNode]]] = defaultdict(lambda: defaultdict(list))
    for node in native:
        sentences[node.code, _PARTICULAR.sub("", node.detail)][node.detail].append(node)
    for alike in sentences.values():
        if len(alike) > MOST_CAUSES:
            yield [node for nodes in alike.values() for node in nodes]
        else:
            yield from alike.values()


def _listed(operators: Sequence[str]) -> str:
    others = f" and {len(operators) - MOST_OPERATORS} more" if len(operators) > MOST_OPERATORS else ""
    return ", ".join(operators[:MOST_OPERATORS]) + others


def _sizes(report: Report) -> str:
    """The bytes of the tensors that cross; those without a fixed size count for nothing."""
    crossing = _crossing_values(report)
    known = [value for value in crossing if _is_sized(value)]
    total = _bytes(sum(map(expected_bytes, known)))
    if len(known) == len(crossing):
        return total
    unknown = f"{len(crossing) - len(known)} of unknown size" if known else "of unknown size"
    return f"{total} and {unknown}" if known else unknown


def _bytes(number: int) -> str:
    if number >= 1e6:
        return f"{number / 1e6:.1f} MB"
    return f"{number / 1e3:.1f} kB" if number >= 1e3 else counted(number, "byte")


def verdict_of(report: Report) -> Iterator[str]:
    """Yield a line about the speed, and where there is something to say, one about the cause and one about a remedy."""
    yield from measured(report) if report.tuning is not None else [_speed(report)]
    if report.native:
        yield _cause(report)
    remedy = _remedy(report)
    if remedy:
        yield f"To try: {remedy}"


def _crossing_values(report: Report) -> list[ir.Value]:
    """Return the tensors that enter or leave a segment, once for each segment."""
    return [value for segment in report.segments for value in (*segment.inputs, *segment.outputs)]


def _is_sized(value: ir.Value) -> bool:
    """Return whether the bytes of a tensor are known."""
    kind, shape = value.type, value.shape
    return isinstance(kind, ir.TensorType) and shape is not None and _are_sized(kind.dtype, shape.dims)


@functools.lru_cache(maxsize=1024)
def _are_sized(dtype: ir.DataType, sizes: Sequence[object]) -> bool:
    return dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING) and all(isinstance(size, int) for size in sizes)


def milliseconds(time_ms: float) -> str:
    """Write a time with three digits."""
    return f"{time_ms:.3g} ms"


def _speed(report: Report) -> str:
    if not report.segments:
        return f"Not faster: no node runs in an engine, so {counted(report.nodes, 'node')} run as in ONNX Runtime."
    if report.unchecked:
        return "Faster or not is unknown: the engines can't run here, so nothing was measured."
    native = sum(report.estimates[s.name].native_ms for s in report.segments)
    engine = sum(report.estimates[s.name].engine_ms for s in report.segments)
    nodes = sum(len(s.nodes) for s in report.segments)
    which = "the whole model" if nodes == report.nodes else f"{nodes} of {counted(report.nodes, 'node')}"
    times = f"{which} in {milliseconds(engine)} with {report.engine} instead of {milliseconds(native)}"
    basis = "Nothing was measured." if all(map(_is_sized, _crossing_values(report))) else UNSIZED
    if engine < native:
        return f"Faster by an estimate, {native / engine:.2g} times: {times}. {basis}"
    return f"Not faster by an estimate: {times}. {basis}"


def measured(report: Report) -> Iterator[str]:
    """Yield the verdict of the measurement, if there was one, and the times that it doesn't name, each once."""
    tuning = report.tuning
    if tuning is None:
        return
    chosen = tuning["chosen"]
    times = measured_times(tuning)
    native = times.pop(NO_ENGINE, math.nan)
    best = chosen if chosen in times else min(times, key=times.__getitem__, default="")
    time = times.pop(best, None)
    if time is None:
        yield f"Not faster, measured here: {milliseconds(native)} natively. No engine is kept."
    elif math.isnan(native):
        yield f"Measured here: {milliseconds(time)} with {best}."
    else:
        gains, left_out = time < native, chosen == NO_ENGINE
        faster = "Not faster" if not gains else "Not clearly faster" if left_out else "Faster"
        ratio = f", {_times(native / time, tuning)}" if gains and not left_out else ""
        kept = " No engine is kept." if left_out else "" if gains else " They are kept all the same."
        with_engines = f"{milliseconds(time)} with {'engines' if best == ALL_ENGINES else best}"
        yield f"{faster}, measured here{ratio}: {with_engines} instead of {milliseconds(native)} natively.{kept}"
    if "border" in tuning:
        yield _border(tuning["border"])
    yield from _remembered(tuning)
    if is_provisional(tuning):
        yield "Noisy measurement, so this choice is provisional: compile again when the machine is less busy."
    if times:
        yield f"Also measured: {', '.join(f'{name} {milliseconds(ms)}' for name, ms in times.items())}."


def _border(border: Mapping[str, Any]) -> str:
    """Write which requests run natively, and what was measured."""
    example = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in border["shapes"].items())
    faster = f"which takes {border['gain']:.2g} of the time with engines at {example}"
    return f"By size: requests of fewer than {border['elements']:,} input elements run natively, {faster}."


def _remembered(tuning: Mapping[str, Any]) -> Iterator[str]:
    """Yield when an earlier command has measured, and how busy the machine was then."""
    if "measured_at" in tuning:
        then = datetime.datetime.fromisoformat(tuning["measured_at"])
        if datetime.datetime.now(datetime.UTC) - then > FRESH:
            load = f"a load of {tuning['load']:g}"
            yield f"Measured on {then:%Y-%m-%d at %H:%M} UTC, at {load}; compile --measure-again forgets it."


def _times(ratio: float, tuning: Mapping[str, Any]) -> str:
    """Write how many times as fast engines are; with the interval where it was they that were measured."""
    if tuning["chosen"] != ALL_ENGINES or "gain" not in tuning:
        return f"{ratio:.3g} times"
    low, middle, high = tuning["gain"]
    return f"{middle:.3g} times ({low:.3g} to {high:.3g})"


def _cause(report: Report) -> str:
    """The reason of most native nodes."""
    reasons: dict[tuple[str, str], int] = {}
    for node in report.native:
        detail = "Engines make them no faster." if _is_measured(report, node) else node.detail
        reasons[node.code, detail] = reasons.get((node.code, detail), 0) + 1
    (code, detail), number = max(reasons.items(), key=lambda item: item[1])
    share = f"{number} of them: " if number < len(report.native) else ""
    return f"{counted(len(report.native), 'node')} {_run(len(report.native))} natively. {share}{detail or code}"


def _remedy(report: Report) -> str:
    foreign = {unknown.cause for unknown in report.unknown_shapes if unknown.domain}  # no size of an input helps there
    known = (REMEDIES[n.code] for n in report.native if n.code in REMEDIES and n.detail not in foreign)
    unmeasured = report.tuning is None and report.compiled_before is not None and report.segments
    return next(known, _measurement(report.engine) if unmeasured else "")


def _measurement(engine: str) -> str:
    if abilities_of(engine, BuildOptions()).idle:
        return f"compile the model here, and measure it where {engine} runs: nothing here can."
    return "compile the model, which measures it here with and without engines."
