"""One process from start to stop: signals and exit code.

Takes: the arguments of ``trtnode serve``.
Gives: the exit code.
Promises: SIGTERM lets accepted requests finish; a second signal ends the process.
Imports: grpc, models, rest, schema, security, service, telemetry, workers.
"""
