"""Compiles a model file: partition, build, check, embed, choose precision, tune.

Takes: an ONNX file, compile options and an engine cache. Gives: a compiled model, or an executable of it. Promises: a
model that ONNX Runtime runs can be compiled; nodes without a checked engine run natively, and the report says why.
Imports: artifact, backends, build, inputs, onnxruntime, runtime, sparse, tuning.
"""
