"""Puts a server under mixed load for minutes: no answer is lost or wrong, and nothing grows.

Takes: minutes, a number of mutated requests, and a number of reloads. Gives: requests by status, and checks of faults,
memory, threads, file descriptors, the log and the exit code: ``python -m benchmarks.soak``. Promises: the same seed
repeats the choices of a run. Imports: load.
"""
