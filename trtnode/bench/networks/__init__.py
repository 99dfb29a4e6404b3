"""The networks that speed is measured on, built as ONNX with seeded random weights.

Takes: a network's name, and a folder for files. Gives: an ONNX file and inputs with the statistics of real ones.
Promises: nothing is downloaded; the same version writes the same bytes on the same machine; parameters and
multiply-accumulates are the published ones. Imports: nothing of the other folders.
"""
