"""Compiled models: writes, reads and strips TrtNodes, and views subgraphs of control flow.

Takes: a Graph, its segments and the engine of each.
Gives: an ONNX model with TrtNodes, and the engine and the replaced nodes of each TrtNode.
Promises: the model is valid ONNX and computes the same in a runtime that has no engines.
Imports: cut, graph, model.
"""
