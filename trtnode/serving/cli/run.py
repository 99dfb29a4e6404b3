"""``trtnode run``: runs a model once on arrays from a file."""

from __future__ import annotations

import argparse
import io
import pathlib
import time
import zipfile
from collections.abc import Iterator, Mapping

import numpy as np

from trtnode.engines.artifact.cache import EngineCache
from trtnode.engines.artifact.files import check_output, write_atomically
from trtnode.engines.compile.opening import open_model
from trtnode.engines.inputs.samples import load_samples, only_inputs
from trtnode.engines.runtime.options import RunOptions
from trtnode.partitioner.wording import counted
from trtnode.serving.cli.option_values import CACHE_BYTES, cache_folder_from
from trtnode.serving.cli.terminal.console import open_console
from trtnode.serving.cli.terminal.progress_bar import showing_progress
from trtnode.serving.cli.trust import trust_from


def run(arguments: argparse.Namespace) -> int:
    """Run and write the outputs.

    Raises:
        PartitionError: The model can't be read.
        EngineError: The model can't be loaded or run, or a file can't be read or written.
    """
    check_output(arguments.outputs, arguments.model, arguments.inputs)
    arrays = load_samples(arguments.inputs)
    cache = EngineCache(cache_folder_from(arguments), CACHE_BYTES)
    with showing_progress("Running"):
        trusting = RunOptions(trust=trust_from(arguments))
        executable = open_model(arguments.model, cache, trusting, use_engines=not arguments.native)
        if arguments.nan is not None:
            executable.nan_natively = arguments.nan == "native"
        feeds = only_inputs(arrays, executable.inputs)
        start = time.perf_counter()
        results = executable.run(feeds)
        milliseconds = (time.perf_counter() - start) * 1e3
    executable.keep_kernels()
    save_arrays(arguments.outputs, results)
    console = open_console()
    for name, value in results.items():
        console.print(f"{name}: {value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else name)
    console.print(f"{milliseconds:.2f} ms, {counted(executable.facts.segments, 'engine segment')}")
    return 0


def save_arrays(path: pathlib.Path, results: Mapping[str, object]) -> None:
    """Write an .npz; ``numpy.savez`` itself can't write arrays with names such as ``file``.

    Raises:
        OutputFileError: The file can't be written.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in results.items():
            for key, array in _arrays(name, value):
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def _arrays(name: str, value: object) -> Iterator[tuple[str, np.ndarray]]:
    """An output as arrays that need no pickle: strings as unicode, elements of a sequence one by one."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            yield from _arrays(f"{name}/{index}", element)
    elif isinstance(value, dict):
        yield from _arrays(f"{name}/keys", np.array(list(value)))
        yield from _arrays(f"{name}/values", np.array(list(value.values())))
    else:
        array = np.asarray(value)
        yield name, array.astype(str) if array.dtype == object else array
