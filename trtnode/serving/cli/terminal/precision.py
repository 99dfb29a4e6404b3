"""Prints what precisions were tried, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trtnode.engines.precision.metrics import named_metrics

MOST_NAMES = 8
"""Nodes to print by name."""


def missed_precision(found: Mapping[str, Any]) -> str:
    """Tell that another precision is in effect than the one asked for; empty where that isn't so.

    Args:
        found: ``asked``, ``effective`` and, where there are engines, what was ``tried``.
    """
    if found["asked"] in (found["effective"], "auto"):
        return ""
    problems = [trial["problem"] for trial in found.get("tried", ()) if "problem" in trial]
    reason = problems[-1] if problems else "no node runs in an engine" if "tried" not in found else "see below"
    return f"{found['asked']} asked for, {found['effective']} in effect: {reason.removesuffix('.')}."


def print_precision(found: Mapping[str, Any], console: Console) -> None:
    """Print the precision asked for and in effect, what was tried, and what became of each segment.

    Args:
        found: The block ``precision`` of a report.
        console: Where to.
    """
    limits = ", ".join(f"{name} {limit}" for name, limit in found["budget"].items())
    console.print(f"Precision: {found['asked']} asked for, {found['effective']} in effect; budget: {escape(limits)}.")
    if found["rules"]:
        console.print(f"Rules, the first that fits counts: {escape(', '.join(found['rules']))}")
    if found["quantized_already"]:
        console.print("The model is quantized already, so it keeps its own scales.")
    if "evaluated_on" in found:
        console.print(f"Accuracy was measured on {found['evaluated_on']}.")
    judged = [trial for trial in found["tried"] if "precision" in trial]
    if judged:
        console.print(_trials(judged))
    timed = [trial for trial in found["tried"] if "measured_ms" in trial]
    for trial in timed:
        times = ", ".join(f"{precision} {ms:.4f} ms" for precision, ms in trial["measured_ms"].items())
        console.print(f"{trial['segment']}: {times}")
    if found["moved_back"]:
        console.print(f"Moved back to {found['moved_back_to']}, the noisiest first: {_some(found['moved_back'])}")
    if found.get("without_kernel"):
        console.print(f"In fp32, since there is no other kernel: {_some(found['without_kernel'])}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{escape(', '.join(names[:MOST_NAMES]))}{more}"


def _trials(trials: list[Mapping[str, Any]]) -> Table:
    named = [name for name in dict.fromkeys(name for trial in trials for name in trial) if named_metrics(name)]
    names = {"cosine": "cosine", "worst_cosine": "of the worst sample", "top1_agreement": "top-1 agreement"}
    columns = {**names, "max_abs": "largest difference", **{name: name for name in named}}
    table = Table("tried", "nodes moved back", *columns.values(), "")
    for trial in trials:
        figures = [trial.get(name) for name in columns]
        shown = ["" if figure is None else f"{figure:.5g}" for figure in figures]
        problem = escape(trial["problem"]) if "problem" in trial else "inside the budget"
        table.add_row(trial["precision"], str(trial["moved_back"]), *shown, problem)
    return table
