"""Measures latencies of models in process and over gRPC, in turns: ``trtnode bench networks`` and ``bench model``.

Takes: models or names of networks, precisions, batch sizes, and other systems. Gives: a result with a row per setting.
Promises: candidates run in their own processes and take turns; an interruption keeps complete rounds.
Imports: latency_report, networks.
"""
