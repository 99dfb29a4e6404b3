"""Loads a compiled model and runs it: engines, native stages between them, and native execution as the fallback.

Takes: an onnx_ir model with TrtNodes, its file, and the engines that may run.
Gives: an ``Executable``, safe from several threads.
Promises: a request that engines can't answer is answered natively and counted; results belong to the caller; an engine
that doesn't fit this machine is replaced by its nodes, with a warning; nodes that nothing else has a kernel for run in
onnx.reference, where they may.
Imports: artifact, backends, cuda, inputs, onnxruntime, precision.
"""
