"""Subjects of a measurement: models at one batch size, with inputs."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from trtnode.bench.errors import InputFileError, UnmeasurableModelError
from trtnode.bench.networks.catalogue import find_network, network_file, sample_inputs
from trtnode.engines.artifact.files import write_model
from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import AlreadyCompiledError, InvalidInputError
from trtnode.engines.inputs.samples import Feeds, find_samples, load_samples
from trtnode.engines.inputs.signature import Signature
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.runtime.executor import Executable
from trtnode.partitioner.compiled.trtnode import is_compiled
from trtnode.partitioner.graph.view import TensorSpec
from trtnode.partitioner.model import protobuf_walk
from trtnode.partitioner.model.external_data import take_data_inside
from trtnode.partitioner.model.loading import load_model, read_proto

HELD_OUT = 8
"""Largest number of samples that measure accuracy."""

CALIBRATING = 24
"""Largest number of samples that give ranges. If there are too few inputs, the same ones serve for both."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LatencySubject:
    """A model at one batch size.

    Attributes:
        name: For the results.
        model: The file, for any batch size.
        batch: Samples per request.
        checking: Inputs to check and tune engines with.
        calibration: Inputs to take ranges from, all of the same shapes.
        samples: Inputs to compare answers on; the first one is timed.
    """

    name: str
    model: pathlib.Path
    batch: int
    checking: Feeds
    calibration: Sequence[Feeds]
    samples: Sequence[Feeds]

    def stacked_calibration(self) -> Feeds:
        """Return the inputs to take ranges from, with a leading axis that counts them."""
        return {name: np.stack([feeds[name] for feeds in self.calibration]) for name in self.checking}


def network_subjects(names: Sequence[str], batches: Sequence[int], folder: pathlib.Path) -> Iterator[LatencySubject]:
    """Yield networks, each built just before it is yielded.

    Args:
        names: Keys of ``NETWORKS``.
        batches: Samples per request.
        folder: Of the built networks.

    Raises:
        UnknownNetworkError: Before any network is built.
    """
    for name in names:
        find_network(name)
    for name in names:
        model = network_file(name, folder)
        for batch in batches:
            checking, *others = (sample_inputs(name, batch, seed) for seed in range(1 + HELD_OUT + CALIBRATING))
            samples, calibration = others[:HELD_OUT], others[HELD_OUT:]
            yield LatencySubject(
                name=name, model=model, batch=batch, checking=checking, calibration=calibration, samples=samples
            )


def model_subjects(
    models: Sequence[pathlib.Path], batches: Sequence[int], inputs: pathlib.Path | None
) -> list[LatencySubject]:
    """Return a user's models, with given or generated inputs.

    Args:
        models: The files.
        batches: Samples per request.
        inputs: An .npz; its arrays are cut into samples along the first axis, and repeated if they are short.

    Raises:
        PartitionError: A file is no model.
        EngineError: ONNX Runtime refuses a model, or the inputs can't be read.
        InputFileError: The inputs don't fit a model.
        UnmeasurableModelError: A model has another fixed batch size, or runs on no generated input.
    """
    return [_model_subject(model, batch, inputs) for model in models for batch in batches]


def _model_subject(model: pathlib.Path, batch: int, inputs: pathlib.Path | None) -> LatencySubject:
    if is_compiled(load_model(model)):
        raise AlreadyCompiledError(model)
    executable = open_model(model, use_engines=False)
    batched = {spec.name for spec in executable.inputs if _leaves_batch_open(spec)}
    if batch > 1 and not batched:
        raise UnmeasurableModelError(model, f"its batch size is fixed, so --batch {batch} is impossible. Use 1.")
    given = [_read_inputs(inputs, executable)] if inputs else _generate_inputs(model, executable.inputs)
    cut = [sample for arrays in given for sample in _cut(arrays, batched, batch)]
    samples, calibration = cut[:HELD_OUT], cut[HELD_OUT:][:CALIBRATING] or cut
    return LatencySubject(
        name=model.stem, model=model, batch=batch, checking=samples[-1], calibration=calibration, samples=samples
    )


def write_at_batch(subject: LatencySubject, target: pathlib.Path) -> None:
    """Write a subject's model with a fixed batch size, because engines are built for one size.

    Args:
        subject: The model.
        target: The file to write.

    Raises:
        PartitionError: The model can't be read.
        OutputFileError: The file can't be written.
    """
    model = read_proto(subject.model)
    take_data_inside(subject.model, protobuf_walk.tensors(model))
    constants = {tensor.name for tensor in model.graph.initializer}
    firsts = [d for value in model.graph.input if value.name not in constants for d in _dimensions(value)[:1]]
    unfixed = [dimension for dimension in firsts if not dimension.HasField("dim_value")]
    symbols = {dimension.dim_param for dimension in unfixed} - {""}
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    same = [d for value in values for d in _dimensions(value) if d.dim_param in symbols]
    for dimension in (*unfixed, *same):
        dimension.dim_value = subject.batch
    write_model(model, target)


def _dimensions(value: onnx.ValueInfoProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    return value.type.tensor_type.shape.dim


def _leaves_batch_open(spec: TensorSpec) -> bool:
    return bool(spec.shape and not isinstance(spec.shape[0], int))


def _read_inputs(path: pathlib.Path, executable: Executable) -> Feeds:
    """Return the arrays of a file that the model takes; the file may have others."""
    names = {spec.name for spec in executable.inputs}
    arrays = {name: array for name, array in load_samples(path).items() if name in names}
    for name, array in arrays.items():
        if array.ndim and not len(array):
            raise InputFileError(path, f"array {name!r} has no rows.")
    try:
        return Signature(executable.inputs, executable.outputs).check(arrays, None)
    except InvalidInputError as error:
        raise InputFileError(path, str(error)) from error


def _generate_inputs(model: pathlib.Path, inputs: Sequence[TensorSpec]) -> Sequence[Feeds]:
    samples = find_samples(NativeSession(model, name=str(model)), inputs, None)
    if not samples:
        raise UnmeasurableModelError(model, "it runs on no generated input. Give inputs with --inputs IN.npz.")
    return samples


def _cut(arrays: Feeds, batched: set[str], batch: int) -> Iterator[Feeds]:
    """Cut arrays into samples of a batch each; rows are repeated if there are too few for one."""
    rows = min((len(array) for name, array in arrays.items() if name in batched), default=1)
    for start in range(0, max(1, rows - batch + 1), batch):
        indices = np.arange(start, start + batch)
        yield {n: a.take(indices, axis=0, mode="wrap") if n in batched else a for n, a in arrays.items()}
