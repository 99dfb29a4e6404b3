"""Stands for the bindings of TensorRT 8.6 where the environment names the folder above; see ``simulated_machine``."""

from __future__ import annotations

from simulated_process import of_process
from tensorrt_8.stand_in import make_bindings

globals().update(vars(make_bindings(of_process()["tensorrt"].Builder._sim)))
