"""KServe V2 messages to arrays and back.

Takes: protocol messages, and the signature of a model.
Gives: arrays that fit the signature, and responses.
Promises: bytes from clients are checked once, here; arrays are views of them where that is safe.
Imports: none.
"""
