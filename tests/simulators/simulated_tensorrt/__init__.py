"""A simulated TensorRT. What runs on it did not run on TensorRT, and its version says so: ``11.4.0.106+simulated``.

Use::

    simulation = Simulation(version="10.13.3.9")
    trt = make_tensorrt(simulation)  # stands for the module ``tensorrt``
    simulation.faults.enqueue_fails_after = 2  # the third enqueue gives False

It builds, reads and runs engines on the memory of a ``simulated_cuda.SimulatedGpu``: a plan holds the ONNX model, and
ONNX Runtime computes it on the host when its stream gets to it. It has the names, arguments and enumerations of the
release that it stands for, and gives None, False or an exception where TensorRT does.
"""

from __future__ import annotations

from simulated_tensorrt.plan import Plan
from simulated_tensorrt.simulation import VARIABLE, Faults, Simulation
from simulated_tensorrt.surface import make_tensorrt

__all__ = ["VARIABLE", "Faults", "Plan", "Simulation", "make_tensorrt"]
