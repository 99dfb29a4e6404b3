"""Compares the server with the least that a gRPC server can do in Python, and with other servers.

Takes: the programs of other servers, and of perf_analyzer; the rest is built here. Gives: requests per second and
latencies of servers that take turns, and targets that are met or missed: ``python -m benchmarks.serving``. Promises:
all servers listen on the loopback, serve the same file, and end with the run.
Imports: latency, load, networks.
"""
