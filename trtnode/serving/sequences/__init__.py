"""Sequences of requests to one model, and the state that each leaves for the next one.

Takes: what requests say of their sequences, and the state that runs leave.
Gives: each request its turn, in the order in which the requests of its sequence came.
Promises: no sequence sees the state of another one, whatever ends it; state within the bounds of the configuration.
Imports: executables, protocol, schema, telemetry, threads.
"""
