"""Turns segments into checked engines, in a child process.

Takes: a partition, precision settings and compile options. Gives: engine files with their envelopes, and refusals with
the nodes that cause them. Promises: a library that crashes, hangs or computes wrong costs a segment its engine, never
this process. Imports: artifact, backends, inputs, onnxruntime, precision, runtime.
"""
