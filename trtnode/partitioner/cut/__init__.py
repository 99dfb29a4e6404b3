"""Labels nodes, cuts them into segments and reports on the result.

Takes: a cleaned Graph, a backend's predicate and the user's options.
Gives: a Partition: a verdict for each node, segments in execution order, and a Report.
Promises: segments form no cycle, and no legal cut has fewer; each native node has a reason.
Imports: graph, model, passes.
"""
