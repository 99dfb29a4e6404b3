"""Describes and makes what models are run on: signatures, samples and shape profiles.

Takes: a model, files of arrays, and the shapes that a user gives.
Gives: checked inputs, generated samples, and the shapes of all tensors of a graph.
Promises: inputs that pass ``Signature.check`` have the types and ranks that the model declares.
Imports: backends.
"""
