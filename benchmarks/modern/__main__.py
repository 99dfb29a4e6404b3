"""Measures what current models cost: ``python -m benchmarks.modern``; needs the extra ``modern``.

Models are exported by torch with random weights, at real sizes, into a folder that is kept. Nothing is downloaded.
Memory is the proportional set size of all processes of a command. One command runs at a time. Returns 1 if a bar of
memory or time is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from trtnode.bench.environment import describe_environment, describe_load
from trtnode.engines.artifact.files import write_atomically

try:
    from benchmarks.modern.decoders import GREEDY_TOKENS, DecodingRow, SpeedRow, measure_decoding, measure_speed
    from benchmarks.modern.memory import MemoryRow, measure_memory
    from benchmarks.modern.networks import NETWORKS
    from benchmarks.modern.texts import TextsRow, measure_texts
except ModuleNotFoundError as error:
    sys.exit(f"python -m benchmarks.modern: {error.name} isn't installed. pip install -e '.[modern]' has it.")

WEIGHTED = ("minilm", "vit", "clip", "gpt2", "dlrm", "llama")
SPED = ("gpt2", "llama", "t5", "whisper", "minilm", "minilm_int4", "gpt2_int4", "t5_int4", "minilm_int8")
DECODING = ("gpt2", "llama")
WIDTH = 150
TURN_S = 5.0

Row = TypeVar("Row", MemoryRow, SpeedRow, DecodingRow, TextsRow)


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    given = _read_arguments()
    given.folder.mkdir(parents=True, exist_ok=True)
    load = describe_load()
    weighed = [_told(measure_memory(name, given.folder)) for name in _asked(given, "memory", WEIGHTED)]
    sped = [_told(measure_speed(name, given.folder, given.rounds)) for name in _asked(given, "speed", SPED)]
    decoded = [_told(measure_decoding(name, given.folder)) for name in _asked(given, "decoding", DECODING)]
    texts = [_told(row) for row in measure_texts(given.folder, TURN_S, given.rounds)] if "texts" in given.parts else []
    environment = {**describe_environment(), "load_average": load, "load_average_after": describe_load()}
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    console.print(
        f"{environment['processor']}, {environment['cores']} cores, load {load} before, {describe_load()} now"
    )
    for table in (_memory_table(weighed), _speed_table(sped), _decoding_table(decoded), _texts_table(texts)):
        if table.rows:
            console.print(table)
    if given.json:
        facts = {"environment": environment, "memory": weighed, "speed": sped, "decoding": decoded, "texts": texts}
        write_atomically(given.json, json.dumps(facts, indent=1, default=dataclasses.asdict).encode())
    return 1 if any(row.misses for row in weighed) else 0


def _asked(given: argparse.Namespace, part: str, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if part in given.parts and name in given.only]


def _told(row: Row) -> Row:
    print(row, file=sys.stderr, flush=True)
    return row


def _memory_table(rows: list[MemoryRow]) -> Table:
    headings = (
        "model",
        "weights",
        "compile, unmeasured",
        "by default",
        "OpenVINO alone",
        "CPU s of the three",
        "serve (import alone)",
        "explain (session)",
        "its CPU s",
        "after Wrote",
        "missed",
    )
    table = Table(*headings, title="Memory in MB, and processor time")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.weights_mb:.0f}",
            *(f"{peak:.0f}" for peak in (row.compile_mb, row.default_mb, row.floor_mb)),
            ", ".join(f"{seconds:.1f}" for seconds in (row.compile_s, row.default_s, row.floor_s)),
            f"{row.serve_mb:.0f} ({row.import_mb:.0f})",
            f"{row.explain_mb:.0f} ({row.session_mb:.0f})",
            f"{row.explain_s:.1f} ({row.session_s:.1f})",
            f"{row.after_s:.1f} s",
            ", ".join(row.misses),
        )
    return table


def _speed_table(rows: list[SpeedRow]) -> Table:
    headings = ("model", "nodes in engines", "segments", "default", "ratio", "all engines", "memory over file")
    table = Table(*headings, title="ONNX Runtime's time over the compiled model's, by past length")
    for row in rows:
        ratios = (
            " ".join(f"{past}: {ratio:.2f}" for past, ratio in r.items()) for r in (row.ratios, row.engine_ratios)
        )
        nodes = f"{row.engine_nodes:.1%}"
        table.add_row(row.name, nodes, str(row.segments), row.chosen, *ratios, f"{row.memory_over_file:.2f}")
    return table


def _decoding_table(rows: list[DecodingRow]) -> Table:
    title = f"Greedy decoding of {GREEDY_TOKENS} tokens with all engines"
    table = Table("model", "equal tokens", "over gRPC", "first, empty past", "later", "memory of it", title=title)
    for row in rows:
        times = f"{row.first_s * 1e3:.0f} ms", f"{row.later_s * 1e3:.0f} ms", f"{row.growth_mb:+.0f} MB"
        table.add_row(row.name, str(row.equal_tokens), str(row.equal_served), *times)
    return table


def _texts_table(rows: list[TextsRow]) -> Table:
    table = Table("callers", "served with lengths", "encode", "encode, many at once", title="Texts a second, MiniLM")
    for row in rows:
        table.add_row(str(row.callers), *(f"{figure:,.0f}" for figure in (row.served, row.encoded, row.bulk)))
    return table


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modern", description=__doc__.splitlines()[0])
    parts = ("memory", "speed", "decoding", "texts")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="default: all")
    parser.add_argument("--only", nargs="+", choices=list(NETWORKS), default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/modern"), help="for the models")
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="turns of each; default: 11")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all figures as one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
