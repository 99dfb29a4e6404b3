"""Executables made of others: variants of one model, and tiles of one image.

Takes: executables of compiled files, and their section of servable.yaml.
Gives: one executable with the same calls.
Promises: memory for tiles doesn't grow with the image.
Imports: protocol, schema.
"""
