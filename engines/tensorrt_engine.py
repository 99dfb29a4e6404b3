"""A TensorRT engine as the rest of the program sees it: by itself, or as a stage of a model on a lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engines.base import Buffer
from engines.lane_programs import LanePrograms, open_alone
from engines.lanes import Lane, Lanes, LaneStage
from engines.layer_times import LayerTime
from engines.tensorrt_plan import TensorRtPlan
from engines.tensorrt_stage import TensorRtStage
from partitioner import TensorSpec


class TensorRtEngine:
    """A deserialized engine, for stages on lanes, and for runs by itself from and to the host's memory."""

    def __init__(
        self, plan: TensorRtPlan, lanes: Lanes, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.lanes = lanes
        self.narrowed: Mapping[str, np.dtype] = {b.name: b.dtype for b in (*plan.inputs, *plan.outputs) if b.narrowed}
        self._plan = plan
        self._alone: list[LanePrograms] = []  # what forks share, made when one of them first runs by itself
        self._feeds: Sequence[Buffer] = ()
        self._results: Sequence[Buffer] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer] | None) -> None:
        """Set where ``run`` reads and writes."""
        self._feeds, self._results = inputs, outputs

    def run(self) -> Sequence[Buffer]:
        """Copy the inputs to the GPU, run, and copy the results back.

        Raises:
            OutOfRangeError: The inputs are outside all profiles, or empty.
            ExecutionError: TensorRT or CUDA failed.
        """
        feeds = {spec.name: buffer for spec, buffer in zip(self.inputs, self._feeds, strict=True)}
        if not self._alone:
            self._alone.append(open_alone(self))
        results = self._alone[0].run(feeds)
        if self._results is None:
            return [results[spec.name] for spec in self.outputs]
        for spec, buffer in zip(self.outputs, self._results, strict=True):
            buffer[...] = results[spec.name]
        return self._results

    def layer_times(self) -> list[LayerTime]:
        """Times of the last run, which cleared those before it; none where the engine serves requests."""
        return self._plan.layer_times()

    def fork(self) -> TensorRtEngine:
        """Another user of the same execution contexts, which the lanes keep apart."""
        engine = TensorRtEngine(self._plan, self.lanes, self.inputs, self.outputs)
        engine._alone = self._alone
        return engine

    def on_lane(self, lane: Lane, inputs: Sequence[str], outputs: Sequence[str]) -> LaneStage:
        """Execution contexts of this engine on one lane, as a stage of a model."""
        return TensorRtStage(self._plan, lane, inputs, outputs)
