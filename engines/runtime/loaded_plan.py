"""The execution plan with its engines and sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from engines.backends.protocols import Engine
from engines.cuda.programs import GpuPrograms
from engines.onnxruntime.session import NativeSession
from engines.precision.boundary_types import Types
from engines.runtime.plan import PlanStage
from partitioner import TensorSpec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPlan:
    """An execution plan whose stages are loaded.

    Attributes:
        stages: In order.
        engines: The engine of each engine stage, by stage name.
        sessions: The session of each native stage, by stage name.
        inputs: Of the model, without those whose defaults are constants in the engines.
        outputs: Of the model.
        constants: Values of outputs that no stage computes, and defaults of inputs.
        held_defaults: Defaults that are constants in the engines, by name of the model's input.
        boundary_types: Element types of boundary tensors that differ from those that the model declares.
        gpu_programs: The whole of it on a GPU's streams; None where its stages are handed arrays of the host.
    """

    stages: tuple[PlanStage, ...]
    engines: Mapping[str, Engine]
    sessions: Mapping[str, NativeSession]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: Mapping[str, np.ndarray]
    held_defaults: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    boundary_types: Types = dataclasses.field(default_factory=dict)
    gpu_programs: GpuPrograms | None = None
