"""Streams, memory, copies and graphs of a GPU, for any engine library.

Takes: stages that put work on a stream (``GpuStage``), and the names and types of the tensors between them.
Gives: ``GpuPrograms``, a model that is ready to run on every execution stream of the GPU.
Promises: one thread at a time uses a stream; memory is freed once its stream is idle; CUDA's errors become this
package's; a lost context is reported once and for all.
Imports: backends.
"""
