"""Runs of a model before its first request, so that no request pays for what libraries do once.

Batches are not padded. OpenVINO prepares itself for each new batch size once, but padding costs execution time in each
batch. So each likely size runs once at load: all sizes up to 16, above that the preferred ones or powers of two.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import pathlib
import time
from collections.abc import Iterable, Mapping

import numpy as np

from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.dimension_names import symbols_of, with_sizes
from trtnode.engines.inputs.samples import Feeds, read_given
from trtnode.engines.inputs.signature import Signature
from trtnode.serving.batching.axis_check import no_batch_axis
from trtnode.serving.batching.length_batches import LengthBatches
from trtnode.serving.batching.lengths import Fill
from trtnode.serving.executables.interface import ServedExecutable
from trtnode.serving.models.interface_check import keeping_state, served_signature
from trtnode.serving.protocol.wire_signature import BYTES, WireSignature, WireTensor
from trtnode.serving.schema.model import BatchingConfig, ModelConfig

logger = logging.getLogger(__name__)

LENGTHS_S = 20.0
"""The longest time of the warm-up of lengths."""

MOST_S = 60.0
"""The longest time of a warm-up, beyond its first run. Requests pay for what is left."""


def warm_up(
    executable: ServedExecutable, signature: WireSignature, config: ModelConfig, batching: BatchingConfig | None
) -> None:
    """Run a model as often as configured, on the configured inputs or on zeros, then once for each likely batch size.

    Args:
        executable: The model.
        signature: Its inputs and outputs.
        config: How it is served.
        batching: How its requests are joined; None if they run one by one.

    Raises:
        EngineError: The configured inputs can't be read, or the model fails on them. Zeros may fail: they need not make
            sense to every model.
    """
    names = [tensor.name for tensor in signature.outputs]
    if config.warmup_inputs is not None:
        given = _given(executable, config.warmup_inputs)
        _repeat(config, itertools.repeat(given, config.warmup), executable, names)
    sizes = itertools.repeat(1, config.warmup if config.warmup_inputs is None else 0)
    batches = batching.warm_sizes() if config.warmup and batching is not None else []
    try:
        likely = _likely_shapes(executable, config)
        feeds = (_all_zeros(signature, size, likely) for size in itertools.chain(sizes, batches))
        _repeat(config, feeds, executable, names)
    except Exception as error:
        logger.warning(
            "Model %r: the warm-up run on zeros failed: %s. The model is served all the same; "
            "give it inputs that it can run on with warmup_inputs, or set warmup to 0",
            config.name,
            str(error).rstrip(". "),
        )


def warm_lengths(
    executable: ServedExecutable,
    signature: WireSignature,
    unlike: LengthBatches,
    config: ModelConfig,
    batching: BatchingConfig | None,
) -> None:
    """Run a model twice at each length, by itself and in batches of 2, 4, 8 and so on, the smallest first.

    The second run tells the time; executions of requests correct it. Whatever fails is left to requests.

    Args:
        executable: The model.
        signature: Its inputs and outputs.
        unlike: Pads its requests.
        config: How it is served.
        batching: How its requests are joined; None if they run one by one.
    """
    run, lengths, names = unlike.padding(executable.run, counted=False), unlike.lengths, signature.output_names
    most = batching.max_batch_size if batching is not None else 1
    rows = [1 << power for power in range(most.bit_length())] if config.warmup else []
    shapes = [(size, bucket) for size in rows for bucket in lengths.buckets if size <= unlike.most_rows(bucket, most)]
    likely, deadline = _likely_shapes(executable, config), time.monotonic() + LENGTHS_S
    for size, bucket in sorted(shapes, key=lambda one: (one[0] > 1, math.prod(one))):
        if time.monotonic() > deadline:
            logger.info("Model %r: the warm-up ended at batches of %d of length %d", config.name, size, bucket)
            return
        feeds = lengths.padded(lengths.shortened(_all_zeros(signature, size, likely)), bucket, _one_for(lengths.mask))
        with contextlib.suppress(EngineError):
            for _ in range(2):
                run(feeds, names, None)


def _one_for(mask: str | None) -> Fill:
    return lambda name, _like: int(name == mask)


def try_once(executable: ServedExecutable, config: ModelConfig) -> None:
    """Run a model once as ``warm_up`` will, where that might not come back; its error is reported there."""
    executable = keeping_state(config, executable)
    signature = served_signature(config, executable)
    names = [tensor.name for tensor in signature.outputs]
    given = config.warmup_inputs
    feeds = _all_zeros(signature, 1, _likely_shapes(executable, config)) if given is None else _given(executable, given)
    try:
        executable.run(feeds, names)
    except MemoryError:
        raise
    except Exception as error:
        logger.debug("Model %r: its first run failed", config.name, exc_info=error)


def _repeat(config: ModelConfig, feeds: Iterable[Feeds], executable: ServedExecutable, names: list[str]) -> None:
    """Run a model on one after the other, for as long as a warm-up may take."""
    deadline = time.monotonic() + MOST_S
    for number, one in enumerate(feeds):
        if number and time.monotonic() > deadline:
            logger.warning("Model %r: the warm-up ended after %d runs, which took %g s", config.name, number, MOST_S)
            return
        executable.run(one, names)


def measuring_feeds(executable: ServedExecutable, config: ModelConfig) -> Feeds:
    """Return what variants are measured on: the configured inputs, else zeros in the largest batch that may form.

    Raises:
        EngineError: The configured inputs can't be read.
        InterfaceError: As ``served_signature``.
        UnservableModelError: As ``served_signature``.
    """
    if config.warmup_inputs is not None:
        return _given(executable, config.warmup_inputs)
    signature = served_signature(config, executable)
    batched = config.batching is not None and no_batch_axis(signature) is None
    rows = config.batching.max_batch_size if config.batching and batched else 1
    return _all_zeros(signature, rows, _likely_shapes(executable, config))


def _given(executable: ServedExecutable, path: pathlib.Path) -> Feeds:
    return read_given(path, Signature(executable.inputs, executable.outputs))


def _likely_shapes(executable: ServedExecutable, config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return shapes by name: the best of the first profile, else those that the compilation found with sizes of 1."""
    if config.options.shapes:
        return {name: shape.opt for name, shape in config.options.shapes[0].items() if not shape.values}
    shapes = (executable.facts.report or {}).get("sizes", {})
    inputs = [dataclasses.replace(s, shape=tuple(shapes[s.name])) for s in executable.inputs if s.name in shapes]
    sized = with_sizes(inputs, dict.fromkeys(symbols_of(inputs), 1))
    return {spec.name: spec.static_shape or () for spec in sized or ()}


def _all_zeros(signature: WireSignature, rows: int, likely: Mapping[str, tuple[int, ...]]) -> Feeds:
    """Return zeros in likely shapes; sizes that nothing says are 1."""
    return {name: _zeros(signature.inputs[name], rows, likely.get(name, ())) for name in signature.required}


def _zeros(tensor: WireTensor, rows: int, best: tuple[int, ...]) -> np.ndarray:
    wanted = tensor.shape or ()
    likely = best if len(best) == len(wanted) else (1,) * len(wanted)
    shape = [one if size == -1 else size for size, one in zip(wanted, likely, strict=True)]
    if shape and rows > 1:
        shape[0] = rows
    if tensor.datatype is BYTES:
        return np.full(shape, "", object)
    return np.zeros(shape, tensor.datatype.numpy)
