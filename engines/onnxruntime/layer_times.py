"""Times of the nodes of a model, from ONNX Runtime's own profile."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from trtnode.engines.backends.layer_times import LayerTime, precision_name
from trtnode.engines.onnxruntime.session import NativeSession

SUFFIX = "_kernel_time"
"""Of the events that are a node's computation."""


def time_nodes(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], runs: int, *, threads: int | None, folder: pathlib.Path
) -> tuple[dict[str, Any], list[list[LayerTime]]]:
    """Run a model and time its nodes.

    Args:
        model: Of a native stage.
        feeds: At least its inputs.
        runs: Number of runs.
        threads: Threads within an operator; None leaves it to the library.
        folder: For the profile.

    Returns:
        The outputs by name, and the nodes of each run in order. ONNX Runtime fuses nodes when it loads a model, and
        gives fused nodes new names.

    Raises:
        ModelLoadError: ONNX Runtime refuses the model.
        ExecutionError: It does not run on these feeds.
    """
    session = NativeSession(model, threads=threads, profile_to=folder / "native")
    given = {name: feeds[name] for name in session.inputs if name in feeds}
    outputs = [session.run(given) for _ in range(runs)][-1]
    events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
    return dict(zip(session.outputs, outputs, strict=True)), list(_by_run(events))


def _by_run(events: Sequence[Mapping[str, Any]]) -> Iterator[list[LayerTime]]:
    """Group the events of nodes by run: a run's own event follows those of its nodes."""
    layers: list[LayerTime] = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(SUFFIX):
            layers.append(_layer(event))
        elif event["name"] == "model_run":
            yield layers
            layers = []


def _layer(event: Mapping[str, Any]) -> LayerTime:
    facts, name = event["args"], event["name"].removesuffix(SUFFIX)
    types = [kind for output in facts.get("output_type_shape", ()) for kind in output]
    return LayerTime(
        name=name,
        nodes=(name,),
        kind=facts["op_name"],
        precision=precision_name(types[0]) if types else "",
        kernel=facts["provider"].removesuffix("ExecutionProvider"),
        us=float(event["dur"]),
    )
