"""Chooses engines and precisions by measurement on this machine.

Takes: a partition with checked float32 engines, and the compiled model. Gives: engines in the precision asked for, and
the nodes that are faster natively. Promises: answers stay inside the accuracy budget, and an engine stays only where
the whole model is clearly faster with it. Imports: artifact, backends, build, inputs, onnxruntime, precision,
quantization, runtime.
"""
