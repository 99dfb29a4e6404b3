"""Runs layers whose weights are mostly zeros.

Takes: a segment in float32, and the compiled kernels beside this file.
Gives: engines that skip the zeros: sessions of ONNX Runtime with operators of this project's own.
Promises: nothing is compiled at run time; weights are packed when an engine is built.
Imports: artifact, backends, onnxruntime.
"""
