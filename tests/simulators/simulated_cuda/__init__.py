"""A simulated GPU and the part of pycuda that drives it. What runs on it did not run on a GPU.

Use::

    gpu = SimulatedGpu()
    cuda = make_driver(gpu)  # stands for the module ``pycuda.driver``
    ...
    assert gpu.leaks() == {}
    assert gpu.misuses == []

Device memory is host memory that is known by its address alone, aligned to 512 bytes and filled with ``POISON``. Work
on a stream waits until somebody synchronizes with it: what is read too early is still poison. The rules of the driver
hold: a current context in each thread, live handles and addresses, and errors that come late and stay.
"""

from __future__ import annotations

from simulated_cuda.driver import make_driver, make_pycuda
from simulated_cuda.errors import CudaError
from simulated_cuda.gpu import POISON, SimulatedGpu

__all__ = ["POISON", "CudaError", "SimulatedGpu", "make_driver", "make_pycuda"]
