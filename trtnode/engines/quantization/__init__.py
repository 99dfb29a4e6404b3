"""Learns ranges of tensors, and writes INT8 models from them.

Takes: a float32 model and samples of its inputs. Gives: a calibration table, and models with Quantize and Dequantize
operators where an engine library looks for them. Promises: calibration takes bounded memory; nodes without a known
range stay float. Imports: artifact, backends, inputs, onnxruntime.
"""
