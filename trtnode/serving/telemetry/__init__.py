"""Counts, traces and logs.

Takes: durations and outcomes of requests.
Gives: Prometheus families, OpenTelemetry spans and log lines.
Promises: a request pays for no lock on its way; no line of the log can be forged by a client.
Imports: none.
"""
