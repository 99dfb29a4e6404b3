"""Results of a measurement, and their JSON."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from collections.abc import Iterable
from typing import Any

import pydantic

from trtnode.bench.errors import ResultFileError

NATIVE = "native"
"""Setting of the baseline: ONNX Runtime alone, in float32."""

RowKey = tuple[str, str, str, int, int | None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """Figures of one setting of one model.

    Attributes:
        network: The model's name.
        setting: native, a precision of this project, or another system.
        engine: The engine, or native.
        via: process or grpc.
        batch: Samples per request.
        threads: Threads of each engine; None for the library's choice.
        p50_ms: Median latency of the steady calls.
        p95_ms: Their 95th percentile.
        p99_ms: Their 99th percentile.
        mean10_ms: Mean of ten requests after the first two.
        ratio: Native time over this setting's, a median over interleaved rounds; above 1 is faster.
        ratio_low: Lower end of its 95 % bootstrap interval.
        ratio_high: Upper end.
        cosine: Smallest cosine with the native outputs; see ``Agreement``.
        max_abs: Largest difference from them.
        top1_agreement: Share of vectors with the same largest element.
        load_s: Time to load the model in a fresh process.
        engine_bytes: Size of the engines in the file.
        peak_rss_mb: Peak memory of a fresh process that has loaded the model and answered, libraries included.
        precision: Precision of the engines, which may differ from the requested one.
        compile_s: Time to compile, measurements included; None if nothing is compiled.
        over_process_ms: Time over gRPC less that of the same setting in process, a median over rounds.
        over_native_ms: That, less the same of native, a median over rounds; then the ends of its 95 % bootstrap
            interval.
        about: What ``trtnode compile`` says about the compiled model; empty if nothing is compiled.
    """

    network: str
    setting: str
    engine: str
    via: str
    batch: int
    threads: int | None
    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean10_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    cosine: float | None
    max_abs: float | None
    top1_agreement: float | None
    load_s: float
    engine_bytes: int
    peak_rss_mb: float
    precision: str = "fp32"
    compile_s: float | None = None
    over_process_ms: float | None = None
    over_native_ms: tuple[float, float, float] | None = None
    about: str = ""

    @property
    def key(self) -> RowKey:
        """Key of the row within a run, which is the same in another run."""
        return self.network, self.setting, self.via, self.batch, self.threads


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A setting that could not be measured for a model."""

    network: str
    setting: str
    reason: str


@dataclasses.dataclass(slots=True, kw_only=True)
class LatencyResult:
    """Result of a run, which grows during the measurement.

    Attributes:
        environment: See ``describe_environment``.
        rows: In the order of measurement.
        left_out: Settings that could not be measured, with reasons.
        complete: True if the run was not interrupted.
    """

    environment: dict[str, Any]
    rows: list[LatencyRow] = dataclasses.field(default_factory=list)
    left_out: list[LeftOut] = dataclasses.field(default_factory=list)
    complete: bool = False

    def find(self, key: RowKey) -> LatencyRow | None:
        """Return the row with a key, or None."""
        return next((row for row in self.rows if row.key == key), None)

    def as_json(self) -> bytes:
        """Return the result as one JSON object; numbers that are not finite are null."""
        return _RESULT.dump_json(self)


def compiled_with(result: LatencyResult) -> str:
    """Return the command whose options models were compiled with."""
    return str(result.environment.get("compiled_with", "trtnode compile"))


def interval_text(figures: tuple[float, float, float]) -> str:
    """Return a median and the ends of its interval as text, with signs."""
    median, low, high = figures
    return f"{median:+.3f} ({low:+.3f} to {high:+.3f})"


_RESULT = pydantic.TypeAdapter(LatencyResult)


def geometric_means(rows: Iterable[LatencyRow]) -> dict[tuple[str, str, int], float]:
    """Return the geometric mean of the ratios over all networks, by setting, via and batch."""
    ratios: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        ratios.setdefault((row.setting, row.via, row.batch), []).append(row.ratio)
    return {group: statistics.geometric_mean(values) for group, values in ratios.items()}


def group_rows(rows: Iterable[LatencyRow]) -> list[tuple[str, list[LatencyRow]]]:
    """Return groups of rows that were measured in turns, with a title, in the order of measurement."""
    groups: dict[tuple[str, int, str], list[LatencyRow]] = {}
    for row in rows:
        groups.setdefault((row.network, row.batch, row.via), []).append(row)
    return [(_title(*key), group) for key, group in groups.items()]


def _title(network: str, batch: int, via: str) -> str:
    return network + (f", batch {batch}" if batch > 1 else "") + (f", {via}" if via != "process" else "")


def read_result(path: pathlib.Path) -> LatencyResult:
    """Read the JSON of ``LatencyResult.as_json``, ignoring unknown fields.

    Raises:
        ResultFileError: The file is unreadable, or no result.
    """
    try:
        return _RESULT.validate_json(path.read_bytes())
    except OSError as error:
        raise ResultFileError(path, f"can't be read ({error.strerror})") from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ResultFileError(path, f"is no result of a benchmark ({place}: {first['msg']})") from error
