"""Measures the cut against exact minimums and other systems: ``python -m benchmarks.partition``."""
