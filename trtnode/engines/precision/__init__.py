"""Precisions: rules for nodes, rewriting of segments to float16, bfloat16 and INT8, and the accuracy budget.

Takes: a segment's model, a setting that names the precision of each node, and a calibration table. Gives: the model in
these precisions; figures of answers, and whether they meet a budget. Promises: the interface of a segment keeps its
types. Imports: backends, quantization.
"""
