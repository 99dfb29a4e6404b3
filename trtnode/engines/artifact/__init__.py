"""Stores results of compilation: engine bytes with their envelope, the engine cache, signatures, the compiled file.

Takes: engine bytes, envelopes, keys and models.
Gives: ``Envelope``, ``EngineCache``, ``Trust`` and ``CompiledModel``.
Promises: no engine library sees engine bytes before their envelope and signature are checked; a doubtful cache entry is
a miss; a reader of a file sees the old one or the new one.
Imports: no other folder.
"""
