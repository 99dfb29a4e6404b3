"""Labels, builds and runs engines with OpenVINO on a CPU.

Takes: nodes of a cleaned graph, and segments as ONNX files.
Gives: ``OpenVinoBackend``.
Promises: a node is refused where OpenVINO is known to compute it differently; usage is never reported over the network.
Imports: artifact, backends.
"""
