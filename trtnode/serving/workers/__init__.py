"""A server of several processes: workers that share both ports, and the supervisor that keeps them.

Takes: a configuration with ``grpc.workers`` above 1.
Gives: a server that starts, stops and answers like one of a single process.
Promises: a worker that ends is replaced, with all changes that clients made.
Imports: executables, grpc, models, pages, rest, schema, security, service, telemetry.
"""
