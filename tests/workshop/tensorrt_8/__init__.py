"""TensorRT 8.6 under the names of TensorRT 10.3, for GPUs whose machine can have no newer release."""
