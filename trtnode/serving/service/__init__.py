"""The answers of every port, whatever the transport.

Takes: requests as protocol messages, or as inferences that read themselves.
Gives: responses, or errors with their status.
Promises: each RPC is answered in one place, and in the pool that one table names.
Imports: batching, models, protocol, schema, security, sequences, telemetry, text, threads, triton.
"""
