"""Reads ONNX files, and answers questions about protobufs and onnx_ir values.

Takes: the path of an ONNX file, its protobuf, or onnx_ir values and nodes.
Gives: an onnx_ir model with sorted nodes, and facts about its values, operators and versions.
Promises: a damaged file is refused with a sentence that says why; data outside the model's folder is never read.
Imports: no other folder.
"""
