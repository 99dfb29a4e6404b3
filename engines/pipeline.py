"""A plan whose engines and sessions are loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from engines.base import Engine
from engines.casts import Types
from engines.lane_programs import LanePrograms
from engines.onnxruntime_backend import NativeSession
from engines.plan import Stage
from partitioner import TensorSpec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A plan whose stages are loaded.

    Attributes:
        stages: In order.
        engines: The engine of each engine stage, by stage name.
        sessions: The session of each native stage, by stage name.
        inputs: Of the model.
        outputs: Of the model.
        constants: Values of outputs, and defaults of inputs, that no stage computes.
        flows: What each control-flow stage runs, by stage name.
        carried: Element types of the boundary tensors that cross in another one than the model declares.
        on_lanes: The whole of it on a GPU's lanes; None where its stages are handed arrays of the host.
    """

    stages: tuple[Stage, ...]
    engines: Mapping[str, Engine]
    sessions: Mapping[str, NativeSession]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: Mapping[str, np.ndarray]
    flows: Mapping[str, Flow] = dataclasses.field(default_factory=dict)
    carried: Types = dataclasses.field(default_factory=dict)
    on_lanes: LanePrograms | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A control-flow node with engines in its bodies.

    Attributes:
        name: The node's identity.
        op_type: ``If``, ``Loop`` or ``Scan``.
        inputs: Names of the node's inputs; empty where one is left out.
        outputs: Names of the node's outputs; empty where one is not wanted.
        constants: Values of the inputs that no run computes.
        bodies: By attribute.
        scanned: How many of the inputs, the last ones, a Scan takes apart.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, np.ndarray]
    bodies: Mapping[str, FlowBody]
    scanned: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FlowBody:
    """A body that is loaded.

    Attributes:
        pipeline: Its inputs are the formal inputs, then what the body captures.
        formal: Number of formal inputs.
    """

    pipeline: Pipeline
    formal: int
