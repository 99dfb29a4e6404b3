"""Times of the layers of a TensorRT engine, and its inspector's descriptions of them.

The code follows the documented Python API; the library is an argument.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from trtnode.engines.backends.layer_times import LayerTime, precision_name

TYPES = ("BF16", "FP16", "FP32", "FP8", "INT8", "INT32", "INT64", "HALF", "FLOAT", "BOOL")
"""Types that a description of a tensor's format may name; of two that overlap, the longer one first."""

MARK = "[ONNX Layer: "
"""Begins the name of an ONNX node in the inspector's metadata, where an engine was built in detail."""


def new_profiler(trt: Any) -> Any:
    """Make a ``trt.IProfiler``. Its ``take()`` returns and clears the microseconds of each layer, in order.

    Execution contexts with a profiler wait for each execution, and then report.

    Args:
        trt: The tensorrt module.
    """
    return _profiler_class(trt)()


@functools.cache
def _profiler_class(trt: Any) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self._times: dict[str, float] = {}

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self._times[layer_name] = self._times.get(layer_name, 0.0) + 1000 * ms

        def take(self) -> dict[str, float]:
            times, self._times = self._times, {}
            return times

    return Profiler


def describe_layers(trt: Any, engine: Any) -> dict[str, Mapping[str, Any]]:
    """Return the inspector's description of each layer by name; nothing of engines that were not built in detail.

    Args:
        trt: The tensorrt module.
        engine: A deserialized engine.
    """
    inspector = engine.create_engine_inspector()
    told = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    return {layer["Name"]: layer for layer in told.get("Layers", ()) if isinstance(layer, dict) and "Name" in layer}


def layer_time(name: str, us: float, facts: Mapping[str, Any]) -> LayerTime:
    """Join the results of profiler and inspector.

    Args:
        name: Of the layer.
        us: Its time.
        facts: From ``describe_layers``.
    """
    return LayerTime(
        name=name,
        nodes=_nodes(str(facts.get("Metadata", ""))) or tuple(name.split(" + ")),
        kind=str(facts.get("LayerType", "")),
        precision=_precision(facts),
        kernel=str(facts.get("TacticName", "")),
        us=us,
    )


def _nodes(metadata: str) -> tuple[str, ...]:
    return tuple(part.split("]")[0] for part in metadata.split(MARK)[1:])


def _precision(facts: Mapping[str, Any]) -> str:
    """Return the type of the first output; release 11 has a field of its own for it."""
    first = next((output for output in facts.get("Outputs", ()) if isinstance(output, dict)), {})
    told = str(first.get("DataType") or first.get("Format/Datatype", "")).upper()
    return next((precision_name(kind) for kind in TYPES if kind in told), "")
