"""Attacks on both ports of a server: its memory, its log and its probes meanwhile.

Takes: the number of descriptors that the server may open.
Gives: a table, and an exit code.
Promises: each attack is an own process, so that it doesn't delay the probes.
Imports: load, soak.
"""
