"""The first lines about a model: whether engines make it faster and by how much, why not more, and what to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from partitioner import ReasonCode, Report, TensorSpec
from partitioner.graph.view import specs
from partitioner.wording import counted

ALL_NATIVE = "all native"
"""The candidate of a measurement that has no engine."""

UNSIZED = "Nothing was measured, and dimensions without a size count as 1; --shape gives them one."
"""Basis of an estimate of a model whose sizes are unknown."""

REMEDIES: Mapping[str, str] = {
    ReasonCode.DATA_DEPENDENT: "--allow data-dependent lets TensorRT take nodes whose output shapes depend on values.",
    ReasonCode.DYNAMIC_SHAPE: "give the inputs sizes with --shape NAME:MIN,OPT,MAX.",
    ReasonCode.NO_KERNEL: "to serve the model, give it `reference: true`.",
    ReasonCode.TOO_SMALL: "a lower --min-segment-nodes lets smaller segments have engines.",
    ReasonCode.UNKNOWN_SHAPE: "give the inputs sizes with --shape NAME:MIN,OPT,MAX.",
    ReasonCode.USER_EXCLUDED: "leave out the options that keep nodes native.",
}
"""What the user can do about the nodes that run natively for a reason."""


def verdict_of(report: Report) -> Iterator[str]:
    """Yield a line about the speed, and where there is something to say, one about the cause and one about a remedy."""
    yield _speed(report)
    if report.native:
        yield _cause(report)
    remedy = _remedy(report)
    if remedy:
        yield f"To try: {remedy}"


def crossing_specs(report: Report) -> list[TensorSpec]:
    """Return the tensors that enter or leave a segment, once for each segment."""
    return [spec for segment in report.segments for spec in specs((*segment.inputs, *segment.outputs))]


def is_sized(spec: TensorSpec) -> bool:
    """Return whether the bytes of a tensor are known."""
    return spec.static_shape is not None and spec.dtype not in (None, ir.DataType.STRING)


def milliseconds(time_ms: float) -> str:
    """Write a time with three digits."""
    return f"{time_ms:.3g} ms"


def _speed(report: Report) -> str:
    if report.tuning is not None:
        return _measured(report.tuning)
    if not report.segments:
        return f"Not faster: no node runs in an engine, so {counted(report.nodes, 'node')} run as in ONNX Runtime."
    if report.unchecked:
        return "Faster or not is unknown: the engines can't run here, so nothing was measured."
    native = sum(report.estimates[s.name].native_ms for s in report.segments)
    engine = sum(report.estimates[s.name].engine_ms for s in report.segments)
    nodes = sum(len(s.nodes) for s in report.segments)
    which = "the whole model" if nodes == report.nodes else f"{nodes} of {counted(report.nodes, 'node')}"
    times = f"{which} in {milliseconds(engine)} with {report.engine} instead of {milliseconds(native)}"
    basis = "Nothing was measured." if all(map(is_sized, crossing_specs(report))) else UNSIZED
    if engine < native:
        return f"Faster by an estimate, {native / engine:.2g} times: {times}. {basis}"
    return f"Not faster by an estimate: {times}. {basis}"


def _measured(tuning: Mapping[str, Any]) -> str:
    times = {one["name"]: one["p50_ms"] for one in tuning["candidates"]}
    chosen, native = times.get(tuning["chosen"]), times.get(ALL_NATIVE)
    if native is None or chosen is None:
        return f"Measured here: {tuning['chosen']} is the fastest."
    if tuning["chosen"] == ALL_NATIVE:
        others = [time for name, time in times.items() if name != ALL_NATIVE]
        beside = f", with engines {milliseconds(min(others))}" if others else ""
        return f"Not faster, measured here: {milliseconds(native)} natively{beside}. No engine is kept."
    return (
        f"Faster, measured here, {native / chosen:.3g} times: {milliseconds(chosen)} with engines instead of "
        f"{milliseconds(native)} natively."
    )


def _cause(report: Report) -> str:
    """The reason of most native nodes."""
    reasons: dict[tuple[str, str], int] = {}
    for node in report.native:
        reasons[node.code, node.detail] = reasons.get((node.code, node.detail), 0) + 1
    (code, detail), number = max(reasons.items(), key=lambda item: item[1])
    share = f"{number} of them: " if number < len(report.native) else ""
    runs = "runs" if len(report.native) == 1 else "run"
    return f"{counted(len(report.native), 'node')} {runs} natively. {share}{detail or code}"


def _remedy(report: Report) -> str:
    if report.what_if_frozen is not None:
        return "--freeze-initializers, if no request replaces the values of initializers."
    known = (REMEDIES[node.code] for node in report.native if node.code in REMEDIES)
    unmeasured = report.tuning is None and report.compiled_before is not None and report.segments
    return next(known, "compile the model, which measures it here with and without engines." if unmeasured else "")
