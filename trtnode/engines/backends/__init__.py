"""Defines the contract of an engine library, the registry of libraries, and the reference that keeps the contract.

Takes: the name of an engine.
Gives: a ``Backend``, which labels nodes, builds segments and loads engines; and the values that it takes and returns.
Promises: a library is imported when its backend is first asked for; ``names`` imports no library at all.
Imports: artifact.
"""
