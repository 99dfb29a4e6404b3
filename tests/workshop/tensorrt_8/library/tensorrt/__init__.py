"""Stands for TensorRT in a process whose path has the folder above; the environment names the real one."""

from __future__ import annotations

import sys

from tensorrt_8 import adapter

sys.modules[__name__] = adapter.of_process()
