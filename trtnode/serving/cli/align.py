"""``trtnode align``: compares a compiled model with the one that it was made from, value by value."""

from __future__ import annotations

import argparse
import json
import math

from rich.console import Console
from rich.table import Table

from trtnode.engines.diagnostics.alignment import AlignedValue, Alignment, align
from trtnode.engines.inputs.samples import load_samples
from trtnode.partitioner.wording import counted
from trtnode.serving.cli.terminal.console import open_console
from trtnode.serving.cli.terminal.progress_bar import showing_progress
from trtnode.serving.cli.trust import trust_from


def align_(arguments: argparse.Namespace) -> int:
    """Compare and print; return 1 if a value diverges.

    Raises:
        PartitionError: A model can't be read.
        EngineError: A model or the inputs can't be used.
    """
    with showing_progress("Comparing"):
        alignment = align(
            arguments.model,
            arguments.reference,
            load_samples(arguments.inputs),
            min_sqnr_db=arguments.min_sqnr,
            trust=trust_from(arguments),
        )
    if arguments.json:
        facts = {"model": arguments.model.name, "reference": arguments.reference.name, **alignment.as_json()}
        print(json.dumps(facts))
    else:
        _print(alignment, open_console())
    return 0 if alignment.first is None else 1


def _print(alignment: Alignment, console: Console) -> None:
    console.print(_verdict(alignment))
    beside_native = any(value.native_sqnr_db is not None for value in alignment.values)
    marks = alignment.first is not None
    headings = ["value", "made by", "cosine", "max abs", "SQNR dB", *["native dB"] * beside_native, *[""] * marks]
    table = Table(*headings)
    for value in alignment.values:
        mark = "diverges" if value.diverges else ""
        native = "" if value.native_sqnr_db is None else _decibels(value.native_sqnr_db)
        figures = (f"{value.cosine:.6f}", f"{value.max_abs:.3g}", _decibels(value.sqnr_db))
        table.add_row(value.name, _maker(value), *figures, *[native] * beside_native, *[mark] * marks)
    console.print(table)
    if beside_native:
        console.print(
            "native dB: ONNX Runtime beside itself, by its defaults or with its integer kernels off, whichever is "
            "further from the reference. A value that is about as far does not diverge."
        )
    if alignment.missing:
        console.print(f"Not in the reference, so not compared: {', '.join(alignment.missing)}.")


def _verdict(alignment: Alignment) -> str:
    first = alignment.first
    if first is not None:
        return (
            f"The first value that diverges is {first.name!r}, made by {_maker(first)}: "
            f"{_decibels(first.sqnr_db)} dB, less than {alignment.min_sqnr_db:g}."
        )
    compared = counted(len(alignment.values), "value")
    return f"No value diverges: {compared} compared, each equal to {alignment.min_sqnr_db:g} dB or better."


def _maker(value: AlignedValue) -> str:
    return value.stage if value.node is None else f"{value.node} in {value.stage}"


def _decibels(ratio: float) -> str:
    return "equal" if ratio == math.inf else f"{ratio:.1f}"
