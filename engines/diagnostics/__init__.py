"""Finds where a compiled model leaves its reference, and times the layers of its stages.

Takes: compiled models, references and inputs.
Gives: ``Alignment``, and the layers of each stage with their times.
Promises: runs in processes that serve no requests.
Imports: artifact, backends, build, inputs, onnxruntime, precision, runtime.
"""
