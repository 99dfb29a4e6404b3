"""Writes benchmarks/RESULTS.md and the README's table: ``python -m benchmarks.results.publish RUN.json``.

``make results`` measures and then calls this.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from benchmarks.results.targets import check_targets, missing_conditions
from trtnode.bench.errors import BenchmarkError, ResultFileError
from trtnode.bench.latency_report.results import (
    NATIVE,
    LatencyResult,
    LatencyRow,
    compiled_with,
    geometric_means,
    group_rows,
    interval_text,
    read_result,
)
from trtnode.engines.artifact.files import write_atomically
from trtnode.engines.errors import EngineError

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPLANATION = """\
Ratio: how many times faster than ONNX Runtime alone in float32 (`native`), in rounds in which all settings took turns,
each in a process of its own; with a 95 % bootstrap interval. Over process: what gRPC adds, in the same rounds; over
native: what of that native doesn't have. mean10: mean of ten requests after the first two. Cosine,
largest difference and top-1: the worst against native over several samples. Load and peak: of a fresh process."""

HEADINGS = (
    "network", "batch", "via", "setting", "engine", "computes in", "p50 ms", "p95 ms", "p99 ms", "mean10 ms",
    "ratio (95 %)", "over process ms", "over native ms (95 %)", "cosine", "max abs", "top-1", "load s",
    "engines MB", "peak MB",
)  # fmt: skip
TEXT_HEADINGS = 6

ABOUT = "Times faster than ONNX Runtime in float32, in interleaved rounds; [all figures](benchmarks/RESULTS.md)."
UNLIMITED = """ Weights are
random, so `bf16` and `int8` have no limit on accuracy here; `auto` keeps to the usual one."""

PEER_NAMES = {"openvino": "OpenVINO alone"}

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


class MarkerError(BenchmarkError):
    """A file has no place for the table."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(f"{path}: there are no lines {BEGIN!r} and {END!r}, in this order. Put them around the table.")


def main(argv: Sequence[str] | None = None, root: pathlib.Path = ROOT) -> int:
    """Write both files below ``root``; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results.publish", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="what `trtnode bench networks --json` has written")
    try:
        publish(parser.parse_args(argv).run, root)
    except (BenchmarkError, EngineError) as error:
        sys.stderr.write(f"{error}\n")
        return int(getattr(error, "exit_code", 1))
    return 0


def publish(run: pathlib.Path, root: pathlib.Path) -> None:
    """Write benchmarks/RESULTS.md, and the table between the markers of README.md.

    Raises:
        ResultFileError: The run is unreadable or not complete.
        MarkerError: README.md has no markers.
        OutputFileError: A file can't be written.
    """
    result = read_result(run)
    if not result.complete:
        raise ResultFileError(run, "holds a run that was ended before its time")
    readme = root / "README.md"
    text = _replaced(readme, readme_block(result))
    write_atomically(root / "benchmarks" / "RESULTS.md", results_page(result).encode())
    write_atomically(readme, text.encode())


def results_page(result: LatencyResult) -> str:
    """Return the text of RESULTS.md."""
    return "\n".join(
        [
            "# Results",
            "",
            "Written by `make results`; `trtnode bench networks --help` tells what can be measured.",
            "",
            *_environment(result),
            "",
            EXPLANATION,
            "",
            *_full_table(result.rows),
            "",
            *_means(result.rows),
            "",
            *_target_lines(result),
            *_left_out(result),
            "",
        ]
    )


def readme_block(result: LatencyResult) -> str:
    """Return the README's block between the markers: the ratios at batch 1 in process."""
    groups = group_rows(row for row in result.rows if row.batch == 1 and row.via == "process")
    settings = list(dict.fromkeys(row.setting for _, rows in groups for row in rows if row.setting != NATIVE))
    means = {setting: mean for (setting, _, _), mean in geometric_means(r for _, rows in groups for r in rows).items()}
    head = ["network", "ONNX Runtime p50, ms", *(PEER_NAMES.get(setting, setting) for setting in settings)]
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    for title, rows in groups:
        by_setting = {row.setting: row for row in rows}
        ratios = [f"{by_setting[s].ratio:.2f}" if s in by_setting else "" for s in settings]
        lines.append(_line([title, f"{by_setting[NATIVE].p50_ms:.3f}", *ratios]))
    lines.append(_line(["**geometric mean**", "", *(f"**{means[setting]:.2f}**" for setting in settings)]))
    about = ABOUT + (UNLIMITED if {"bf16", "int8"} & set(settings) else "")
    return "\n".join([*_environment(result), "", *lines, "", about])


def _environment(result: LatencyResult) -> Iterator[str]:
    environment = result.environment
    versions = environment["versions"]
    threads = {row.threads for row in result.rows}
    yield (
        f"{str(environment['time'])[:10]}, {environment['processor']}, {environment['cores']} cores "
        f"({', '.join(environment['features']) or 'no fast instruction sets'}), "
        f"{environment['memory_gb']} GB, load {environment['load_average'][0]} before and "
        f"{environment['load_average_after'][0]} after;"
    )
    yield (
        f"onnxruntime {versions['onnxruntime']}, openvino {versions['openvino']}, Python {environment['python']}, "
        f"threads: {', '.join(str(count or 'the default of each library') for count in threads)}; "
        f"compiled with `{compiled_with(result)}`."
    )


def _full_table(rows: Sequence[LatencyRow]) -> Iterator[str]:
    yield _line(HEADINGS)
    yield _line(["---"] * TEXT_HEADINGS + ["---:"] * (len(HEADINGS) - TEXT_HEADINGS))
    for row in rows:
        yield _line(
            [row.network, str(row.batch), row.via, row.setting, row.engine, row.precision]
            + [f"{ms:.3f}" for ms in (row.p50_ms, row.p95_ms, row.p99_ms, row.mean10_ms)]
            + [
                _ratio(row),
                _number(row.over_process_ms, "%.3f"),
                interval_text(row.over_native_ms) if row.over_native_ms else "",
            ]
            + [_number(row.cosine, "%.6f"), _number(row.max_abs, "%.1e"), _number(row.top1_agreement, "%.3f")]
            + [f"{row.load_s:.2f}", f"{row.engine_bytes / 1e6:.1f}", f"{row.peak_rss_mb:.0f}"]
        )


def _means(rows: Sequence[LatencyRow]) -> Iterator[str]:
    yield from ("| setting | via | batch | geometric mean of ratios |", "|---|---|---:|---:|")
    for (setting, via, batch), mean in geometric_means(row for row in rows if row.setting != NATIVE).items():
        yield _line([setting, via, str(batch), f"{mean:.3f}"])


def _target_lines(result: LatencyResult) -> Iterator[str]:
    lacks = missing_conditions(result.environment, result.rows)
    yield from ("## Targets", "")
    if lacks:
        yield from (f"The targets are meant for other conditions; this run lacks: {', '.join(lacks)}.", "")
    yield from ("| target | measured | met |", "|---|---|---|")
    for target in check_targets(result):
        yield _line([target.text, target.figure, "yes" if target.met else "no"])


def _left_out(result: LatencyResult) -> Iterator[str]:
    if result.left_out:
        yield from ("", "## Left out", "")
    for one in result.left_out:
        yield f"- {one.network}, {one.setting}: {one.reason}"


def _replaced(path: pathlib.Path, block: str) -> str:
    text = path.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkerError(path)
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def _ratio(row: LatencyRow) -> str:
    return f"{row.ratio:.2f} ({row.ratio_low:.2f} to {row.ratio_high:.2f})"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form % value


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
