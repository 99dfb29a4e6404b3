"""Describes and makes what models are run on: signatures, samples and shape profiles.

Takes: a model, files of arrays, and the shapes that a user gives.
Gives: checked inputs, generated samples, the shapes of all tensors of a graph, and copies of a model's files.
Promises: inputs that pass ``Signature.check`` have the types and ranks that the model declares; a copy stays whole as
long as a process holds it.
Imports: artifact, backends.
"""
