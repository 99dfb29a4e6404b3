"""``trtnode prune``: sets the smallest weights of a model to zero, and tells what that does to its answers."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator

from trtnode.engines.conversion.pruning import PruningReport, prune_file
from trtnode.engines.sparse.pruning import PruningScope
from trtnode.partitioner.wording import counted
from trtnode.serving.cli.terminal.console import open_console
from trtnode.serving.cli.terminal.progress_bar import showing_progress

COST = (
    "Pruning without training costs accuracy. Train the network on with these zeros held; docs/sparse.md of the "
    "project says how."
)


def prune(arguments: argparse.Namespace) -> int:
    """Prune, compare and write.

    Raises:
        PartitionError: The model can't be read.
        EngineError: It has nothing to prune, the data don't fit it, or the file can't be written.
    """
    scope = PruningScope(ends=arguments.all_layers, dense=tuple(arguments.dense))
    with showing_progress("Pruning"):
        report = prune_file(
            arguments.model,
            arguments.output,
            sparsity=arguments.sparsity,
            block=arguments.block,
            scope=scope,
            data=arguments.data,
        )
    if arguments.json:
        print(json.dumps({"output": str(arguments.output), **_facts(report)}))
    else:
        for sentence in _sentences(report, arguments):
            open_console().print(sentence, markup=False, highlight=False)
    return 0


def _facts(report: PruningReport) -> dict[str, object]:
    figures = None if report.figures is None else report.figures.as_json()
    return {**dataclasses.asdict(report), "figures": figures}


def _sentences(report: PruningReport, arguments: argparse.Namespace) -> Iterator[str]:
    yield from _verdict(report, arguments.data)
    yield (
        f"Wrote {arguments.output}: {report.zeros:.1%} of the weights of {counted(len(report.layers), 'layer')} are "
        f"zero, in blocks of {arguments.block}; {report.zeros_of_all:.1%} of all weights."
    )
    yield COST


def _verdict(report: PruningReport, data: str | None) -> Iterator[str]:
    if (figures := report.figures) is None:
        yield "The answers weren't compared: the model runs on no generated input. Give samples with --data."
        return
    kept = f"not inside the accuracy budget: {report.broken}" if report.broken else "inside the accuracy budget"
    yield f"The answers are {kept}."
    yield (
        f"Against the dense model, on {counted(figures.samples, 'sample')}: cosine {figures.cosine:.4f}, "
        f"{figures.top1_agreement:.1%} of the best classes stay, the largest difference is {figures.max_abs:.4g}."
    )
    if data is None:
        yield "The samples were generated, so this says little about accuracy. Give samples with --data."
