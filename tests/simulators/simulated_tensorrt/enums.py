"""TensorRT's enumerations, with their numbers in each release: some moved in 11."""

from __future__ import annotations

import enum
from typing import Any

from simulated_tensorrt.real_parser import enumerations
from simulated_tensorrt.simulation import RTX

Release = tuple[int, int]

SEVERITIES = "INTERNAL_ERROR:0 ERROR:1 WARNING:2 INFO:3 VERBOSE:4"

ENUMS = {
    "BuilderFlag": (
        "FP16:0:- INT8:1:- DEBUG:2 GPU_FALLBACK:3 REFIT:4 DISABLE_TIMING_CACHE:5 TF32:6 SPARSE_WEIGHTS:7 SAFETY_SCOPE:8"
        " OBEY_PRECISION_CONSTRAINTS:9:- PREFER_PRECISION_CONSTRAINTS:10:- DIRECT_IO:11 REJECT_EMPTY_ALGORITHMS:12:-"
        " VERSION_COMPATIBLE:13:12 EXCLUDE_LEAN_RUNTIME:14:13 FP8:15:- ERROR_ON_TIMING_CACHE_MISS:16:15 BF16:17:-"
        " DISABLE_COMPILATION_CACHE:18:17 STRIP_PLAN:19:18 REFIT_IDENTICAL:20:19 WEIGHT_STREAMING:21:20 INT4:22:-"
        " REFIT_INDIVIDUAL:23:22 STRICT_NANS:24:23:10.9 MONITOR_MEMORY:25:24:10.9 EDITABLE_TIMING_CACHE:27:26:10.9"
        " DISTRIBUTIVE_INDEPENDENCE:28:27:10.13"
    ),
    "DataType": (
        "FLOAT:0 HALF:1 INT8:2 INT32:3 BOOL:4 UINT8:5 FP8:6 BF16:7 INT64:8 INT4:9 FP4:10:10:10.9 E8M0:11:11:10.13"
    ),
    "ErrorCode": (
        "SUCCESS:0 INTERNAL_ERROR:1 MEM_ALLOC_FAILED:2 MODEL_DESERIALIZE_FAILED:3 INVALID_VALUE:4 INVALID_GRAPH:5"
        " INVALID_NODE:6 UNSUPPORTED_GRAPH:7 UNSUPPORTED_NODE:8 UNSUPPORTED_NODE_ATTR:9 UNSUPPORTED_NODE_INPUT:10"
        " UNSUPPORTED_NODE_DATATYPE:11 UNSUPPORTED_NODE_DYNAMIC:12 UNSUPPORTED_NODE_SHAPE:13 REFIT_FAILED:14"
    ),
    "ExecutionContextAllocationStrategy": "STATIC:0 ON_PROFILE_CHANGE:1 USER_MANAGED:2",
    "HardwareCompatibilityLevel": "NONE:0 AMPERE_PLUS:1 SAME_COMPUTE_CAPABILITY:2:2:10.9",
    "MemoryPoolType": (
        "WORKSPACE:0 DLA_MANAGED_SRAM:1 DLA_LOCAL_DRAM:2 DLA_GLOBAL_DRAM:3 TACTIC_DRAM:4 TACTIC_SHARED_MEMORY:5"
    ),
    "NetworkDefinitionCreationFlag": (
        "EXPLICIT_BATCH:0:- STRONGLY_TYPED:1:0 PREFER_JIT_PYTHON_PLUGINS:2:1:10.9 PREFER_AOT_PYTHON_PLUGINS:3:2:10.9"
    ),
    "TensorFormat": "LINEAR:0 CHW2:1 HWC8:2 CHW4:3 CHW16:4 CHW32:5",
    "TensorIOMode": "NONE:0 INPUT:1 OUTPUT:2",
    "TensorLocation": "DEVICE:0 HOST:1",
}
"""Members as ``NAME:number``, ``:number from 11`` where it moved, or ``-`` where it is gone, ``:first release``."""

ITEM_SIZES = {"HALF": 2, "BF16": 2, "FLOAT": 4, "INT32": 4, "INT64": 8, "INT4": 0.5, "FP4": 0.5, "E8M0": None}
"""Bytes; the others have one."""


class BoundEnum(enum.Enum):
    """As the bindings make them: they turn into numbers, and are none."""

    def __int__(self) -> int:
        number: int = self.value
        return number

    __index__ = __int__


class BoundDataType(BoundEnum):
    @property
    def itemsize(self) -> float | None:
        return ITEM_SIZES.get(self.name, 1)


def members(text: str, release: Release) -> dict[str, int]:
    """The members that a release has, with their numbers there."""
    found = {}
    for part in text.split():
        name, number, later, first = (*part.split(":"), "", "")[:4]
        known = not first or release >= tuple(int(n) for n in first.split("."))
        if known and not (later == "-" and release >= (11, 0)):
            found[name] = int(later if later and release >= (11, 0) else number)
    return found


def make_enums(release: Release) -> dict[str, Any]:
    """The enumerations of a release, by name; those without a member there are not there."""
    if release == RTX:
        tables = {name: table for name, table in enumerations().items() if name != "Severity"}
    else:
        tables = {name: members(text, release) for name, text in ENUMS.items()}
    bases = {"DataType": BoundDataType}
    return {name: bases.get(name, BoundEnum)(name, table) for name, table in tables.items() if table}


Severity = enum.IntEnum("Severity", members(SEVERITIES, (10, 0)))
"""The one enumeration whose members compare like numbers."""
