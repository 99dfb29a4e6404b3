"""Dynamic batching: requests that wait at the same time become one execution.

Takes: arrays of requests, and their options in the queue.
Gives: the rows of each request.
Promises: no request overtakes another of its priority, but for one of another length; a faulty request fails alone.
Imports: executables, protocol, schema, telemetry, threads.
"""
