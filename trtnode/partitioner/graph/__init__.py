"""The read-only view of a graph, on which everything else works, and copies of its parts as models.

Takes: an onnx_ir model whose nodes are in topological order.
Gives: a Graph of Nodes with identities, keys and edges, and standalone models of some nodes.
Promises: the view changes no model; nodes with equal keys get equal verdicts of an engine library.
Imports: model.
"""
