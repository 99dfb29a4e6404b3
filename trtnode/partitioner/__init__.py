"""Partitions ONNX models: loads, cleans, labels and cuts them, writes TrtNodes, and reports on the result."""
