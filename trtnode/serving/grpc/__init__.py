"""The gRPC port.

Takes: a model host, and the configuration of the server.
Gives: a port with the inference service, health and reflection.
Promises: a call without the right to its RPC is refused before its request is read.
Imports: batching, protocol, schema, security, service, telemetry.
"""
