"""Keeps entries of the engine cache where other machines find them, and copies of model files that nobody else writes.

Takes: an address, and entries of the cache; model files. Gives: ``SharedStore``, the cache's second tier, and
``SourceCopies``.
Promises: an entry is only taken if somebody with the store's key has published it, whole; a store that fails costs a
warning and nothing else. A copy stays whole as long as a process holds it.
Imports: artifact.
"""
