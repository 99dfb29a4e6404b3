"""Stands for TensorRT in a process whose path has the folder above; see ``simulated_machine``."""

from __future__ import annotations

import sys

from simulated_process import of_process

sys.modules.update(of_process())
