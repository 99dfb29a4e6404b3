"""Labels nodes for TensorRT's parser, and rewrites segments so that the parser reads them as ONNX means them.

Takes: nodes of a cleaned graph, segments as models, and TensorRT's module where its parser is asked.
Gives: verdicts by the table of one library (``tables``, ``rtx``), and models that mean the same to the parser.
Promises: what the parser misreads is rewritten or refused, also on machines without TensorRT.
Imports: no other folder.
"""
