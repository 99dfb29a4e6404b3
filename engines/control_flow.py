"""Runs If, Loop and Scan: https://onnx.ai/onnx/operators/onnx__Loop.html, and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engines.errors import ExecutionError
from engines.pipeline import Flow, FlowBody
from partitioner import TensorSpec

Values = Mapping[str, np.ndarray]

Run = Callable[[Values], list[np.ndarray]]
"""Runs a body on all that it reads. The results belong to the caller."""


def run_flow(flow: Flow, runs: Mapping[str, Run], values: Values) -> dict[str, np.ndarray]:
    """Run a control-flow node.

    Args:
        flow: The node.
        runs: Its bodies, by attribute.
        values: All that the node reads, captured values included, by name.

    Returns:
        The node's outputs by name. They belong to the caller.

    Raises:
        ExecutionError: A body failed, or the values contradict the operator.
    """
    try:
        results = RULES[flow.op_type](flow, runs, {**flow.constants, **values})
    except ValueError as error:  # numpy: more than one element where there must be one, or shapes that differ
        raise ExecutionError(f"{flow.op_type} {flow.name!r}: {error}") from error
    return {name: result for name, result in zip(flow.outputs, results, strict=True) if name}


def _run_if(flow: Flow, runs: Mapping[str, Run], values: Values) -> list[np.ndarray]:
    branch = "then_branch" if values[flow.inputs[0]].item() else "else_branch"
    return _call(flow.bodies[branch], runs[branch], [], values)


def _run_loop(flow: Flow, runs: Mapping[str, Run], values: Values) -> list[np.ndarray]:
    """Like ONNX Runtime, which lets the body end a loop also where the node is given no condition."""
    trips, condition, *initial = (*flow.inputs, "", "")[: max(2, len(flow.inputs))]
    body, run = flow.bodies["body"], runs["body"]
    number, flag = body.pipeline.inputs[:2]
    limit = values[trips].item() if trips else np.inf
    go = values[condition].item() if condition else True
    carried = [values[name] for name in initial]
    scanned: list[list[np.ndarray]] = [[] for _ in body.pipeline.outputs[1 + len(carried) :]]
    iteration = 0
    while go and iteration < limit:
        done, *results = _call(body, run, [_scalar(iteration, number), _scalar(go, flag), *carried], values)
        go, carried = done.item(), results[: len(carried)]
        for items, item in zip(scanned, results[len(carried) :], strict=True):
            items.append(item)
        iteration += 1
    specs = body.pipeline.outputs[1 + len(carried) :]
    if not iteration:
        carried = [value.copy() for value in carried]  # these are not the body's results, which belong to the caller
    return [*carried, *(_joined(items, spec) for items, spec in zip(scanned, specs, strict=True))]


def _call(body: FlowBody, run: Run, formal: Sequence[np.ndarray], values: Values) -> list[np.ndarray]:
    inputs = body.pipeline.inputs
    feeds = {s.name: value for s, value in zip(inputs[: body.formal], formal, strict=True)}
    feeds.update((s.name, values[s.name]) for s in inputs[body.formal :])
    return run(feeds)


def _run_scan(flow: Flow, runs: Mapping[str, Run], values: Values) -> list[np.ndarray]:
    """Forward along the first axis; like ONNX Runtime, not without any iteration."""
    first = len(flow.inputs) - flow.scanned
    carried = [values[name] for name in flow.inputs[:first]]
    sequences = [values[name] for name in flow.inputs[first:]]
    body, run = flow.bodies["body"], runs["body"]
    scanned: list[list[np.ndarray]] = [[] for _ in body.pipeline.outputs[len(carried) :]]
    if not len(sequences[0]):
        raise ExecutionError(f"Scan {flow.name!r} has nothing to scan.")
    for items in zip(*sequences, strict=True):
        results = _call(body, run, [*carried, *map(np.asarray, items)], values)
        carried = results[: len(carried)]
        for kept, item in zip(scanned, results[len(carried) :], strict=True):
            kept.append(item)
    return [*carried, *map(np.stack, scanned)]


def _scalar(value: int | bool, spec: TensorSpec) -> np.ndarray:
    """A scalar, or the vector of one element as which some exporters declare it."""
    assert spec.dtype is not None
    return np.full((1,) * len(spec.shape or ()), value, spec.dtype.numpy())


def _joined(items: Sequence[np.ndarray], spec: TensorSpec) -> np.ndarray:
    """A scan output; without any iteration only its rank is known, so that ONNX Runtime takes 0 for what is unknown."""
    if items:
        return np.stack(items)
    if spec.shape is None or spec.dtype is None:
        raise ExecutionError(f"The rank of {spec.name!r} is unknown, and the loop has not run.")
    return np.empty((0, *(d if isinstance(d, int) else 0 for d in spec.shape)), spec.dtype.numpy())


RULES: Mapping[str, Callable[[Flow, Mapping[str, Run], Values], list[np.ndarray]]] = {
    "If": _run_if,
    "Loop": _run_loop,
    "Scan": _run_scan,
}
"""How to run an operator."""
