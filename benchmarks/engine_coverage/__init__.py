"""Builds real models with TensorRT for RTX, in segments and whole: ``python -m benchmarks.engine_coverage``.

Takes: a folder of ONNX models with data. Gives: nodes in engines that were built, engines, build calls and times of
each model, beside the library alone on the whole model. Promises: a model that crashes the library ends no run.
Imports: ``partition``, for ONNX Runtime's partitioning helper.
"""
