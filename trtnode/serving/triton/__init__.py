"""Triton's configuration of a model: config.pbtxt, or the JSON of a request to load it.

Takes: the text.
Gives: the same model as a section of servable.yaml would describe it.
Promises: each field is followed, logged or refused; none is passed over.
Imports: protocol, schema.
"""
