"""Faults of ONNX Runtime that a session avoids by another form of its model, or by other options.

Takes: a model, as a protobuf.
Gives: what to change in it, or which optimizers to leave out.
Promises: a model without the fault keeps its form and its speed.
Imports: no other folder.
"""
