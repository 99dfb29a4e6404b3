"""Runs TensorRT on the GPU of a machine, once through everything: ``python -m scripts.gpu_day``."""
