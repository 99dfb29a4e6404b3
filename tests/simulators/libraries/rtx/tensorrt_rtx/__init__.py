"""Stands for TensorRT for RTX in a process whose path has the folder above; see ``simulated_machine``."""

from __future__ import annotations

import pathlib
import sys

sys.path.remove(str(pathlib.Path(__file__).parents[1]))
del sys.modules[__name__]  # the simulator asks the real one

from simulated_process import of_process  # noqa: E402

sys.modules.update(of_process())
