"""servable.yaml, read and checked.

Takes: the path of a file.
Gives: a configuration that can be served.
Promises: every fault is reported at once, with file, line and field.
Imports: models, schema, triton.
"""
