"""The networks that speed is measured on, built here as ONNX with seeded random weights."""

from benchmarks.networks.catalogue import (
    NETWORKS,
    Network,
    UnknownNetworkError,
    find_network,
    network_file,
    sample_inputs,
)

__all__ = ["NETWORKS", "Network", "UnknownNetworkError", "find_network", "network_file", "sample_inputs"]
