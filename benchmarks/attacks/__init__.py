"""Attacks on both ports of a server, and model files that ask for too much: what they take, and whom they delay.

Takes: the number of descriptors that the server may open.
Gives: a table, and an exit code.
Promises: each attack is an own process, so that it doesn't delay the probes.
Imports: load, soak.
"""
