"""Keeps entries of the engine cache where other machines find them.

Takes: an address, and entries of the cache. Gives: ``SharedStore``, the cache's second tier.
Promises: an entry is only taken if somebody with the store's key has published it, whole; a store that fails costs a
warning and nothing else.
Imports: artifact.
"""
