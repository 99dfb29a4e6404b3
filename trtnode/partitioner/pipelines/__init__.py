"""Preprocessing and postprocessing, chained around a model.

Takes: the path of a model, and stages before and behind it: building blocks and ONNX files.
Gives: one onnx_ir model at the newest opset that a stage needs.
Promises: a stage that doesn't fit is refused with its place in the configuration and advice.
Imports: compiled, graph, model, passes.
"""
