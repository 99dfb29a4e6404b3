"""Builds, loads and runs engines of TensorRT and of libraries with its API.

Takes: segments as ONNX files, build options and engine bytes; ``library`` describes each library as a value.
Gives: ``TensorRtBackend``, and engines that run as stages on execution streams.
Promises: the library's module is imported in ``library`` alone, and every other file takes it as an argument; nodes are
labelled without it; its errors become this package's.
Imports: artifact, backends, cuda, tensorrt/labelling.
"""
