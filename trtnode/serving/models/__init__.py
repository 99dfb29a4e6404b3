"""Model versions on disk and in memory.

Takes: configured models, and changes by clients.
Gives: servables that are ready to run, by name and version.
Promises: a version is freed only when its last request has left; a load that fails leaves the one before it.
Imports: batching, executables, protocol, schema, sequences, telemetry, text, threads, triton.
"""
