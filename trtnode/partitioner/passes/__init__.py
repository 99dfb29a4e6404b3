"""Clean-ups and shape inference before labelling.

Takes: an onnx_ir model, which is changed in place.
Gives: a Graph with inlined functions, folded shape arithmetic, sorted live nodes and inferred shapes.
Promises: inputs and outputs stay, and the model computes the same values.
Imports: graph, model.
"""
