"""Compares the cut with exact minimums and with other systems: ``python -m benchmarks.partition``.

Takes: sizes of generated graphs, and a folder of real models. Gives: segments, crossing tensors and times of each
method, and targets that are met or missed. Promises: scores use no code of the partitioner; peers get the same labels.
Imports: nothing of the other folders.
"""
