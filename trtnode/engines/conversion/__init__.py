"""Writes plain ONNX from plain ONNX: typed in a precision, or with zeros among its weights.

Takes: an ONNX file, options of precision or of pruning, and samples. Gives: an ONNX file without engines, and how far
its answers are from those of the source. Promises: a typed model is written only inside its accuracy budget.
Imports: artifact, backends, build, compile, inputs, onnxruntime, precision, quantization, sparse, tuning.
"""
