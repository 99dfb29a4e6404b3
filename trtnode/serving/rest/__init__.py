"""The HTTP port: REST V2, probes, metrics and pages.

Takes: a model host, and the configuration of the server.
Gives: a port, and the ASGI application behind it.
Promises: REST runs in the pools of gRPC and answers with its messages, field for field.
Imports: batching, models, pages, protocol, schema, security, service, telemetry, text.
"""
