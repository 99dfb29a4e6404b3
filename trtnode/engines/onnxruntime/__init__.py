"""Runs models and native stages in ONNX Runtime, and asks it for types, versions and times.

Takes: an ONNX file, or a model small enough for one protobuf message.
Gives: a ``NativeSession``, safe for concurrent runs.
Promises: a model that ONNX Runtime refuses is opened in its native form, if it has one; errors are this package's own.
Imports: artifact, backends, onnxruntime/workarounds.
"""
