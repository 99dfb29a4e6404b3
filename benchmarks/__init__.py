"""Benchmarks: models natively against compiled, servers, the cut, and the overhead of each request."""
