"""Finds where a compiled model leaves its reference, from stage to stage.

Takes: compiled models, references and inputs.
Gives: ``Alignment``.
Promises: runs in processes that serve no requests.
Imports: artifact, build, inputs, onnxruntime, precision, runtime.
"""
