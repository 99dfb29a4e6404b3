"""Equal rewrites: the same values from cheaper nodes.

Takes: a cleaned onnx_ir model, and the engine that will run it.
Gives: the model with some nodes replaced, in place, and a list of what was replaced.
Promises: results keep their names, and stay within 1e-5 of their largest element or of their operator's bound;
    weights that others read stay.
Imports: model, passes.
"""
