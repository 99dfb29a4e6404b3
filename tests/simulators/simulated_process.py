"""The modules of a simulated GPU for a process; importing it imports nothing of this project that asks for a GPU."""

from __future__ import annotations

import functools
from typing import Any

from simulated_cuda import make_pycuda
from simulated_tensorrt import Simulation, make_tensorrt


def modules(simulation: Simulation) -> dict[str, Any]:
    """The engine library and pycuda on one simulated GPU, by module name."""
    library = make_tensorrt(simulation)
    return {library.__name__: library, **make_pycuda(simulation.gpu)}


@functools.cache
def of_process() -> dict[str, Any]:
    """The modules of the simulation that the environment describes; one a process."""
    return modules(Simulation.of_process())
