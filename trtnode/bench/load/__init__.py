"""Puts load on a KServe V2 server and measures its latency: ``trtnode bench server``.

Takes: the address of any KServe V2 server, a model's name, and levels of load. Gives: a row of throughput and latencies
per level. Promises: in an open loop, latency counts from when a request was due; drawing progress disturbs no
measurement. Imports: nothing of the other folders.
"""
